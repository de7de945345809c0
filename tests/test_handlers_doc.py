"""`docs/handlers.md`: its tables are those of the code, and its examples do what they say."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import sources

from stoker import CurrentJob, prune_once
from stoker.client.spec import options_of_a_handler
from stoker.worker.context import set_current_job

PAGE = (sources.ROOT / "docs" / "handlers.md").read_text(encoding="utf-8")
OWN_PART = PAGE.partition("\n## Hooks")[0]


def options_of_the_decorator() -> set[str]:
    """What a type checker lets `@app.job(...)` take."""
    tree = sources.tree_of(sources.SRC / "worker" / "app.py")
    jobs = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "job"]
    return {option.arg for job in jobs for option in job.args.kwonlyargs}


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def test_table_of_policies_has_every_option() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section("Policies"), re.MULTILINE)) == options_of_the_decorator()


def test_options_of_one_job_are_all_named() -> None:
    sentence = re.search(r"`send_mail\.using\(\.\.\.\)` takes(.*?)\n\n", PAGE, re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"\w+_?\w*", " ".join(re.findall(r"`([^`]*)`", sentence[1])))) == set(
        options_of_a_handler()
    )


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the examples define, in a directory with a shop, within a job."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute("CREATE TABLE accounts (id INTEGER, cents INTEGER)")
        connection.execute("INSERT INTO accounts VALUES (7, 100)")
    names: dict[str, Any] = {"sqlite3": sqlite3, "closing": closing, "prune_once": prune_once}
    names["fetch"] = str
    for code in re.findall(r"^```python\n(.*?)^```", OWN_PART, re.DOTALL | re.MULTILINE):
        exec(code, names)  # noqa: S102 - the page's own examples
    set_current_job(CurrentJob("job-1", 2, (1, 7), "charge", "default", {}, 0.0))
    yield names
    set_current_job(None)


def cents() -> int:
    with closing(sqlite3.connect("shop.db")) as connection:
        found: tuple[int] = connection.execute("SELECT cents FROM accounts").fetchone()
        return found[0]


def test_example_of_an_effect_makes_it_once(page: dict[str, Any]) -> None:
    page["charge"](7, 30)
    page["charge"](7, 30)
    assert cents() == 70
    assert page["forget_old_charges"]() == 0


def test_other_examples_run(page: dict[str, Any]) -> None:
    page["crawl"](["a", "b"])
    assert page["send_mail"]("a@example.net", "hello") == "sent 5 characters as job-1"


def test_example_of_arguments_that_do_not_fit_is_refused(page: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'text'"):
        page["send_mail"].enqueue("a@example.net")
