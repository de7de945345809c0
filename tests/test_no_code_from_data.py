"""Nothing that comes over the socket or out of the journal can become code, or a path outside of the state.

Whoever could write to the queue could otherwise run what he likes. So the few ways there are in Python
stand here, and each place that uses one of them, with the reason.
"""

import ast
from pathlib import Path

from support import sources

DECODERS = {
    "pickle",
    "cPickle",
    "dill",
    "marshal",
    "shelve",
    "yaml",
    "ruamel",
    "jsonpickle",
    "cloudpickle",
    "copyreg",
}
"""What makes objects of any class from bytes."""

CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "run_path",
    "run_module",
    "system",
    "popen",
}

ALLOWED = {
    # The name of a module of stoker itself, from a table in the same file.
    ("__init__.py", "import_module"),
    # The module of a command, from the table of commands.
    ("cli/main.py", "import_module"),
    # What the application's own code names in `App(include=...)`.
    ("worker/app.py", "import_module"),
    # The app that is named on the command line of the pool.
    ("worker/zygote.py", "import_module"),
    # A module of the standard library, by a name that stands there.
    ("worker/surroundings.py", "import_module"),
    # A function with the parameters of a handler, whose names the compiler has seen before.
    ("worker/signature.py", "exec"),
}

SHARED_DIRECTORIES = {"/tmp", "/var/tmp", "/dev/shm"}


def relative(path: Path) -> str:
    return str(path.relative_to(sources.SRC))


def called(node: ast.AST) -> str:
    """The bare name of what a call calls, empty for anything else. `re.compile` is none of them."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return "" if isinstance(owner, ast.Name) and owner.id == "re" else node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def test_no_module_decodes_objects() -> None:
    found = {
        (relative(path), name)
        for path in sources.modules()
        for name in sources.imports(path)
        if name.split(".")[0] in DECODERS
    }
    assert found == set()


def test_code_is_made_and_found_only_where_it_is_said() -> None:
    found = {
        (relative(path), called(node))
        for path in sources.modules()
        for node in ast.walk(sources.tree_of(path))
        if called(node) in CALLS
    }
    assert found - ALLOWED == set()


def test_every_exception_is_still_in_use() -> None:
    found = {
        (relative(path), called(node))
        for path in sources.modules()
        for node in ast.walk(sources.tree_of(path))
    }
    assert ALLOWED - found == set()


def test_no_file_of_a_fixed_name_lies_in_a_shared_directory() -> None:
    named = {
        (relative(path), text)
        for path in sources.modules()
        for text in sources.strings(path)
        if any(text == each or text.startswith(f"{each}/") for each in SHARED_DIRECTORIES)
    }
    # Where the private directories of jobs are made, each under a name that nobody knows before.
    assert named - {("worker/scratch.py", "/tmp")} == set()


def test_no_shell_is_ever_asked() -> None:
    found = {
        (relative(path), keyword.arg)
        for path in sources.modules()
        for node in ast.walk(sources.tree_of(path))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "shell"
    }
    assert found == set()
