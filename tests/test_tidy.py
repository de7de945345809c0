"""The source as text: what reviewers would otherwise have to look for by hand."""

import ast
import re
from pathlib import Path

import pytest
from support import sources

LINES_MAX = 500

ENTRY_POINTS = {"stoker.cli.main", "stoker.demo.tasks"}
"""Reached from outside: the console script, and handlers named on a command line."""

SLEEPERS: set[str] = set()
"""Test files that may sleep, each with its reason beside it. Waiting belongs to `support/waiting.py`."""

TEXTS = sorted(
    path
    for pattern in (
        *("*.md", "*.toml", "Makefile", ".ci/*"),
        *("docs/**/*.md", "examples/*", "benchmarks/*.py", "contrib/**/*"),
    )
    for path in sources.ROOT.glob(pattern)
    if path.is_file()
)

STRAY = re.compile("|".join(["/wor" + "k/", r"\.\./sha" + "red", "py" + r"pi\.org", "npm" + r"js\.org"]))
"""Paths of one machine, and hosts of package registries. In pieces, or this file would match itself."""

UNNUMBERED = re.compile("TO" + r"DO(?!\(#\d+\))|FIX" + "ME|XX" + "X")

UNEXPLAINED = re.compile(
    r"#\s*(?:type: ig" + r"nore|pyright: ig" + r"nore|no" + r"qa|pragma: no co" + r"ver)"
    r"(?:\[[^\]]*\]|: ?[A-Z]+[0-9]+)?(?!.*[a-z]+ [a-z]+)"
)
"""A checker told to be quiet, without at least two words that say why."""


def relative(path: Path) -> str:
    return str(path.relative_to(sources.ROOT))


def matching_lines(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def all_files() -> list[Path]:
    return [*sources.modules(), *sources.modules(sources.TESTS), *TEXTS]


@pytest.mark.parametrize("path", sources.modules(), ids=relative)
def test_source_file_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize(
    "path", [*sources.modules(), *sources.modules(sources.TESTS / "support")], ids=relative
)
def test_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(sources.tree_of(path))


@pytest.mark.parametrize("path", sources.modules(), ids=relative)
def test_source_imports_itself_relatively(path: Path) -> None:
    absolute = [
        node.lineno
        for node in ast.walk(sources.tree_of(path))
        if (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "stoker"
        )
        or (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "stoker" for name in node.names))
    ]
    assert absolute == []


def test_no_reminder_without_an_issue_number() -> None:
    assert matching_lines(UNNUMBERED, all_files()) == []


def test_checkers_are_silenced_only_with_a_reason() -> None:
    assert matching_lines(UNEXPLAINED, all_files()) == []


def test_nothing_names_one_machine_or_a_registry() -> None:
    assert matching_lines(STRAY, all_files()) == []


def is_sleep(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("time", "trio")
    )


def test_tests_wait_for_conditions_and_never_sleep() -> None:
    sleeping = {
        relative(path)
        for path in sources.modules(sources.TESTS)
        if path.name.startswith("test_") and any(map(is_sleep, ast.walk(sources.tree_of(path))))
    }
    assert sleeping == SLEEPERS


def test_every_module_is_used() -> None:
    used = {name for path in sources.modules() for name in sources.imports(path)}
    named = {text for path in sources.modules() for text in sources.strings(path)}
    dead = [
        name
        for name in map(sources.name_of, (path for path in sources.modules() if path.name != "__init__.py"))
        if name not in used | ENTRY_POINTS
        and not named & {name, name.removeprefix("stoker"), name.split(".")[-1]}
    ]
    assert dead == []


def test_links_between_pages_lead_somewhere() -> None:
    links = [
        (page, target)
        for page in TEXTS
        if page.suffix == ".md"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert [(relative(page), target) for page, target in links if not (page.parent / target).exists()] == []


def test_every_test_directory_mirrors_a_source_directory_or_has_a_purpose_of_its_own() -> None:
    own = {"support", "data", "conformance", "properties", "simulation", "faults", "integration", "compat"}
    mirrored = {path.name for path in sources.SRC.iterdir() if path.is_dir()}
    found = {path.name for path in sources.TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found - own - mirrored == set()
