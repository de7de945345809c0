"""The project's own files and imports, for the tests that read them as text and as syntax trees."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
TESTS = ROOT / "tests"


def modules(under: Path = SRC) -> list[Path]:
    """Every Python file below a directory, in order."""
    return sorted(path for path in under.rglob("*.py") if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    """`src/proto/frames.py` -> `stoker.proto.frames`, a package's `__init__` -> the package."""
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["stoker", *parts])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """Full dotted names a module imports, anywhere in it, with relative ones resolved.

    `from .core import step` gives both `stoker.broker.core` and `stoker.broker.core.step`: which of
    the two is the module only the import system knows.
    """
    package = name_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield start
            for alias in node.names:
                yield f"{start}.{alias.name}"


def strings(path: Path) -> Iterator[str]:
    """Every text constant of a module: modules loaded by name appear there."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
