"""Payloads for people: decoded where they can be, a preview where not, always harmless."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.escape import CUT
from stoker.cli.payload import SHOWN_MAX, payload_fields, result_text
from stoker.client.values import encode_arguments, encode_value


def test_arguments_of_the_library_are_decoded() -> None:
    payload = encode_arguments([1, "x", b"\xff"], {"a": None})
    assert payload_fields(payload) == [
        ("payload", f"{len(payload)} bytes, arguments"),
        ("  args", '[1, "x", "b\'\\\\xff\'"]'),
        ("  kwargs", '{"a": null}'),
    ]


def test_json_is_decoded() -> None:
    assert payload_fields(b'["a"]') == [("payload", "5 bytes, JSON"), ("  args", '["a"]')]
    assert payload_fields(b'{"a": 1}')[1] == ("  kwargs", '{"a": 1}')


def test_other_bytes_are_previewed() -> None:
    assert payload_fields(b"plain \x1b[2J\xff") == [
        ("payload", "11 bytes"),
        ("  bytes", "plain \\x1b[2J\\xff"),
    ]


def test_what_only_looks_like_json_is_previewed() -> None:
    assert payload_fields(b"[1, 2") == [("payload", "5 bytes"), ("  bytes", "[1, 2")]


@given(st.binary())
def test_any_payload_is_shown_without_control_characters(payload: bytes) -> None:
    assert all(text.isprintable() for _, text in payload_fields(payload))


@given(st.recursive(st.text() | st.binary(), lambda inner: st.lists(inner)))
def test_any_result_is_shown_without_control_characters(value: object) -> None:
    assert result_text(encode_value([str(value).encode("utf-8", "replace").decode()])).isprintable()


def test_datetime_is_shown_as_it_is_enqueued() -> None:
    shown = '[{"$datetime": "2026-07-20T10:15:00+00:00"}]'
    assert result_text(encode_value([datetime(2026, 7, 20, 10, 15, tzinfo=UTC)])) == shown


def test_long_values_are_cut() -> None:
    text = payload_fields(encode_arguments(["x" * 10_000], None))[1][1]
    assert text.endswith(CUT)
    assert len(text) == SHOWN_MAX + len(CUT)


def test_result_that_is_no_value_is_previewed() -> None:
    assert result_text(b"two words") == "two words"
