"""Nothing foreign reaches a terminal as anything but printable characters."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.escape import CUT, escape, escape_bytes, escape_lines, shorten

HOSTILE = {
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x1b[2J": "\\x1b[2J",
    "\x9b31m": "\\x9b31m",
    "a\nb\tc\rd": "a\\nb\\tc\\rd",
    "a\x7fb": "a\\x7fb",
    "\u2028\u2029": "\\u2028\\u2029",
    "\u202eevil\u2066": "\\u202eevil\\u2066",
    "\u200b\ufeff": "\\u200b\\ufeff",
    "\ud800": "\\ud800",
    "\U000e0041": "\\U000e0041",
    "\0": "\\x00",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_its_code(text: str) -> None:
    assert escape(text) == HOSTILE[text]


@given(st.text())
def test_escaped_text_is_printable(text: str) -> None:
    assert escape(text).isprintable()


@given(st.text())
def test_escaped_text_has_no_control_or_format_character(text: str) -> None:
    assert not any(unicodedata.category(char)[0] == "C" for char in escape(text))


@given(st.text().filter(str.isprintable))
def test_printable_text_is_left_alone(text: str) -> None:
    assert escape(text) == text


@given(st.text())
def test_lines_are_printable_and_only_newlines_end_them(text: str) -> None:
    lines = escape_lines(text)
    assert len(lines) == text.count("\n") + 1
    assert all(line.isprintable() for line in lines)


@given(st.binary(), st.integers(0, 40))
def test_bytes_are_printable_and_marked_when_cut(data: bytes, length_max: int) -> None:
    shown = escape_bytes(data, length_max)
    assert shown.isprintable()
    assert shown.endswith(CUT) or len(data) <= length_max or not data


@given(st.text(), st.integers(3, 40))
def test_shortened_text_keeps_its_length(text: str, length_max: int) -> None:
    shown = shorten(text, length_max)
    assert len(shown) <= length_max
    assert shown.isprintable()
