"""Columns, JSON that is harmless, and a reader that went away."""

import json
from datetime import UTC, datetime

import pytest

from stoker.cli.output import counted, fields, json_text, table


def test_columns_are_aligned_under_their_heads() -> None:
    lines = table(["id", "count"], [["a", "1"], ["longer", "200"]], frozenset({"count"}))
    assert lines == ["id      count", "a           1", "longer    200"]


def test_empty_cells_leave_no_trailing_spaces() -> None:
    assert table(["id", "note"], [["a", ""]]) == ["id  note", "a"]


def test_empty_fields_are_left_out() -> None:
    assert fields([("id", "a"), ("reason", ""), ("longer", "b")]) == ["id      a", "longer  b"]


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800", "line\nbreak"])
def test_json_is_one_line_of_harmless_ascii(hostile: str) -> None:
    text = json_text({hostile: hostile})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {hostile: hostile}


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"plain\n", "plain\n"), (b"\xff", {"base64": "/w=="}), (b"\x1b[", {"base64": "G1s="}), (b"", "")],
)
def test_bytes_are_text_if_a_person_can_read_them(data: bytes, shown: object) -> None:
    assert json.loads(json_text({"payload": data})) == {"payload": shown}


def test_datetime_is_written_as_it_is_enqueued() -> None:
    value = datetime(2026, 7, 20, 10, 15, tzinfo=UTC)
    assert json.loads(json_text([value])) == [{"$datetime": "2026-07-20T10:15:00+00:00"}]


def test_floats_that_json_has_no_word_for_become_text() -> None:
    value = {"result": [float("nan"), (float("inf"), -float("inf")), {"deep": float("nan")}, 1.5, b"x"]}
    assert json_text(value) == ('{"result": ["NaN", ["Infinity", "-Infinity"], {"deep": "NaN"}, 1.5, "x"]}')


@pytest.mark.parametrize(("count", "said"), [(0, "0 workers"), (1, "1 worker"), (2, "2 workers")])
def test_one_is_not_plural(count: int, said: str) -> None:
    assert counted(count, "worker") == said
