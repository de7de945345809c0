"""The names that `import stoker` offers: all there, lazy, and known to type checkers."""

import ast
import re

import pytest
from support import sources

import stoker


@pytest.mark.parametrize("name", stoker.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(stoker, name) is not None


def test_no_other_name_is_invented() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(stoker, "no_such_name")  # noqa: B009 - a checker would refuse the plain form


def test_names_for_type_checkers_are_the_public_ones() -> None:
    tree = sources.tree_of(sources.SRC / "__init__.py")
    declared = {
        alias.name
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == set(stoker.__all__) - {"__version__"}


def test_version_is_that_of_the_package() -> None:
    text = (sources.ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    assert version is not None
    assert stoker.__version__ == version[1]


def test_names_are_listed() -> None:
    assert set(stoker.__all__) <= set(dir(stoker))
