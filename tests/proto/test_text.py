"""Lines, JSON both ways, and bytes in JSON."""

import json
import re
from typing import Any

import pytest

from stoker.proto import limits, messages, text, work
from stoker.proto.errors import RemoteProtocolError
from stoker.proto.messages import Refusal
from stoker.proto.ops import BY_NAME
from stoker.proto.text import LineReader


def reader_of(data: bytes, json_bytes_max: int = 1000) -> LineReader:
    reader = LineReader(json_bytes_max)
    reader.feed(data)
    return reader


def parse_code(line: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        text.parse(line)
    return caught.value.code


def fields(**given: Any) -> list[Any]:
    return text.fields(BY_NAME["enqueue"], given)


@pytest.mark.parametrize(
    ("byte", "is_text"), [(0, False), (0x1F, False), (0x20, True), (0x7E, True), (0x7F, False)]
)
def test_printable_ascii_means_text(byte: int, is_text: bool) -> None:
    assert text.is_text(byte) is is_text


# --- lines ---------------------------------------------------------------------------------------------


def test_a_line_ends_with_a_newline_and_perhaps_a_carriage_return() -> None:
    reader = reader_of(b"stats\r\n{}\nqu")
    assert [reader.next_line(), reader.next_line(), reader.next_line()] == [b"stats", b"{}", None]
    reader.feed(b"it\n")
    assert reader.next_line() == b"quit"


def test_a_line_is_incomplete_until_its_newline_is_there() -> None:
    reader = reader_of(b"")
    assert not reader.incomplete
    reader.feed(b"sta")
    assert reader.next_line() is None
    assert reader.incomplete
    reader.feed(b"ts\n")
    assert not reader.incomplete


def test_a_line_of_json_may_be_as_long_as_its_limit() -> None:
    assert reader_of(b"{" + b"a" * 9 + b"\n", 10).next_line() == b"{" + b"a" * 9


@pytest.mark.parametrize("data", [b"{" + b"a" * 10, b"{" + b"a" * 10 + b"\n", b"a" * 225, b"a" * 225 + b"\n"])
def test_a_line_over_its_limit_is_refused_also_before_its_end(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(data, 10).next_line()
    assert caught.value.code == "frame_too_large"


@pytest.mark.parametrize("start", [b"GET ", b"POST /jobs HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n"])
def test_a_first_line_that_starts_like_http_is_refused_before_its_end(start: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(start).next_line()
    assert caught.value.code == "http_refused"


def test_a_later_line_that_starts_like_http_is_a_line() -> None:
    reader = reader_of(b"stats\nGET /\n")
    assert [reader.next_line(), reader.next_line()] == [b"stats", b"GET /"]


# --- requests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"{}x",
        b'{"a": 1, "a": 2}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"[" * 9000 + b"]" * 9000 + b"}",
    ],
)
def test_a_line_that_is_not_one_map_of_json_is_a_bad_frame(line: bytes) -> None:
    assert parse_code(line) == "bad_frame"


def test_a_line_crowded_with_items_is_refused() -> None:
    assert parse_code(b'{"a": [' + b"1," * (limits.ITEMS_MAX + 1) + b"1]}") == "bad_frame"
    assert parse_code(b'{"a": [' + b'"",' * (8 * limits.ITEMS_MAX) + b"1]}") == "bad_frame"


def test_commas_inside_strings_do_not_crowd_a_line() -> None:
    line = json.dumps({"a": "1," * (2 * limits.ITEMS_MAX), "b": '\\",' * 100}).encode()
    assert text.parse(line) == json.loads(line)


def test_a_line_crowded_with_lists_is_refused() -> None:
    crowd = b'{"a": [' + b"[]," * limits.CONTAINERS_MAX + b"1]}"
    assert parse_code(crowd) == "bad_frame"


def test_brackets_inside_strings_do_not_count() -> None:
    payload = '["\\"[[{{' * limits.CONTAINERS_MAX
    assert text.parse(json.dumps({"payload": payload}).encode()) == {"payload": payload}


def test_a_string_that_ends_in_a_backslash_hides_nothing_behind_it() -> None:
    assert parse_code(rb'{"a": "\\", "b": [' + b"[]," * limits.CONTAINERS_MAX + b"1]}") == "bad_frame"


def test_a_string_without_its_end_does_not_hide_brackets_before_it() -> None:
    assert parse_code(b'{"a": ' + b"[" * limits.CONTAINERS_MAX + b'"\\') == "bad_frame"


def test_fields_are_taken_by_name() -> None:
    values = fields(kind="k", id="a", payload="é", priority=3)
    assert values[:6] == ["a", "k", "é".encode(), False, None, 3]
    assert len(values) == len(messages.Enqueue._fields)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("enqueue", {"delay": 5}, "enqueue has no field 'delay'; its fields: id, kind, payload, "),
        ("status", {"x" * 1000: 1}, f"status has no field '{'x' * 80}'; its fields: none"),
    ],
)
def test_a_field_that_the_op_does_not_have_is_refused_by_name(name: str, given: Any, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"^{re.escape(message)}") as caught:
        text.fields(BY_NAME[name], {"op": name, "request": 1, **given})
    assert caught.value.code == "bad_message"


def test_bytes_may_be_given_in_base64() -> None:
    assert fields(id="a", kind="k", payload={"base64": "AP8="})[2] == b"\x00\xff"


@pytest.mark.parametrize(
    "payload", [{"base64": "A"}, {"base64": "AP8=\n"}, {"base64": 5}, "\ud800", {"base64": "é"}]
)
def test_bytes_that_are_not_valid_are_refused_by_name(payload: object) -> None:
    with pytest.raises(RemoteProtocolError, match="`payload`") as caught:
        fields(id="a", kind="k", payload=payload)
    assert caught.value.code == "bad_message"


@pytest.mark.parametrize("payload", [5, True, [], {"base64": "", "more": 1}, {"hex": "00"}], ids=str)
def test_what_is_neither_text_nor_base64_is_refused_by_what_it_must_be(payload: object) -> None:
    with pytest.raises(RemoteProtocolError, match=r'`payload` must be a string or \{"base64": "..."\}'):
        fields(id="a", kind="k", payload=payload)


def test_null_is_left_to_the_rule() -> None:
    assert fields(id="a", kind="k", payload=None)[2] is None


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="`kind` is missing"):
        fields(id="a", payload="")


# --- answers -------------------------------------------------------------------------------------------


def test_an_answer_has_its_fields_by_name() -> None:
    line = text.answer_line(7, messages.Enqueued("a", 1))
    assert line == b'{"ok": true, "request": 7, "id": "a", "number": 1}\n'


def test_an_answer_to_a_request_without_id_has_none() -> None:
    assert text.answer_line(0, messages.Done()) == b'{"ok": true}\n'


def test_a_refusal_has_code_message_and_detail() -> None:
    line = text.refusal_line(3, Refusal("too_late", "done", {"state": "done"}))
    assert json.loads(line) == {
        "ok": False,
        "request": 3,
        "error": "too_late",
        "message": "done",
        "detail": {"state": "done"},
    }


def test_a_push_has_its_op() -> None:
    line = text.push_line("kill", work.Kill("12345678", [1, 2], "lost", 0))
    assert json.loads(line) == {
        "op": "kill",
        "worker": "12345678",
        "token": [1, 2],
        "reason": "lost",
        "grace_ms": 0,
    }


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (b"", ""),
        ("é\t\n".encode(), "é\t\n"),
        (b"\x1b[31m", {"base64": "G1szMW0="}),
        ("\x85".encode(), {"base64": "woU="}),
        (b"\xff", {"base64": "/w=="}),
    ],
)
def test_bytes_are_text_if_a_person_can_read_them_else_base64(value: bytes, spelled: object) -> None:
    line = text.answer_line(0, messages.Shown({"payload": value}))
    assert json.loads(line)["job"]["payload"] == spelled


def test_nothing_but_printable_ascii_goes_out() -> None:
    hostile = "\x1b]0;owned\x07\x7f\u009b31m\u202e é"
    line = text.answer_line(1, messages.Because("a", "ready", [hostile]))
    assert all(0x20 <= byte <= 0x7E for byte in line[:-1])
    assert json.loads(line)["reasons"] == [hostile]


def test_what_has_no_json_form_is_an_error_here() -> None:
    with pytest.raises(TypeError, match="object"):
        text.answer_line(0, messages.Shown({"a": object()}))
