"""`docs/security.md` names a test for each thing that it says, and each of them exists."""

import ast
import re

import pytest
from support import sources

PAGE = (sources.ROOT / "docs" / "security.md").read_text(encoding="utf-8")

_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
NAMED = sorted(set(_NAMED.findall(PAGE)))

ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what ")]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_test_exists(path: str, name: str) -> None:
    tree = sources.tree_of(sources.ROOT / path)
    functions = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert name in functions


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_row_has_a_test_or_says_why_not(row: str) -> None:
    _, _, _, held_by, _ = row.split("|")
    assert _NAMED.search(held_by) or held_by.strip().startswith("not tested: ")


def test_page_has_its_rows() -> None:
    assert len(ROWS) > 30
