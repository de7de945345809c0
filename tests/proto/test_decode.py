"""Recordings as lines: what is shown, what is hidden, and that nothing is left unescaped."""

from collections.abc import Iterable

import pytest
from support.peers import frame, line

from stoker.proto import codec
from stoker.proto.decode import CALLS_REMEMBERED_MAX, Decoder
from stoker.proto.messages import Enqueue, Hello, Show

ENQUEUE = Enqueue("order-123", "mail", b"\x1b[31m" * 20, priority=3)


def decoded(*chunks: bytes, preview: bool = False) -> list[str]:
    decoder = Decoder(preview=preview)
    lines = [said for chunk in chunks for said in decoder.feed(chunk)]
    return lines + list(decoder.finish())


def said(lines: Iterable[str]) -> list[str]:
    """The lines without their sizes."""
    return [text.partition("bytes  ")[2] for text in lines]


def dump(direction: str, data: bytes) -> bytes:
    header = f"{direction} 2026/11/29 17:28:16.000732792  length={len(data)} from=0 to={len(data) - 1}\n"
    return header.encode() + b" " + data.hex(" ").encode() + b"\n--\n"


def test_a_frame_is_a_line_with_size_request_op_and_fields() -> None:
    data = frame(ENQUEUE, 7)
    expected = f'{len(data):>7} bytes  #7 enqueue id="order-123" kind="mail" payload=<100 bytes> priority=3'
    assert decoded(data) == [expected]


def test_a_preview_shows_how_a_payload_begins_and_escapes_it() -> None:
    (text,) = decoded(frame(ENQUEUE, 7), preview=True)
    assert '<100 bytes "\\u001b[31m' in text
    assert '"...>' in text
    assert "\x1b" not in text


def test_a_short_payload_is_previewed_whole() -> None:
    assert '<2 bytes "ok">' in decoded(frame(Enqueue("a", "k", b"ok")), preview=True)[0]


def test_any_chunking_gives_the_same_lines() -> None:
    data = frame(ENQUEUE, 7) + frame(Show("a"), 8)
    assert decoded(*(data[i : i + 1] for i in range(len(data)))) == decoded(data)


def test_a_refusal_has_its_fields_by_name() -> None:
    assert said(decoded(codec.encode([1, 7, "conflict", "no"]))) == [
        '#7 refused code="conflict" message="no"'
    ]


def test_an_answer_alone_has_its_fields_in_their_order() -> None:
    assert said(decoded(codec.encode([0, 7, "a", b"12", [1, {"b": None}]]))) == [
        '#7 answer "a" <2 bytes> [1 {b=null}]'
    ]


def test_an_unknown_op_and_unknown_fields_are_shown() -> None:
    frames = codec.encode([99, 1, "a"]) + codec.encode([11, 2, "a", 5])
    assert said(decoded(frames)) == ['#1 op 99 (unknown) "a"', '#2 cancel id="a" field_1=5']


def test_both_directions_give_answers_their_names() -> None:
    lines = decoded(dump(">", frame(ENQUEUE, 7)), dump("<", codec.encode([0, 7, "order-123", 41])))
    assert [text[0] for text in lines] == [">", "<"]
    assert said(lines)[1] == '#7 answer enqueue id="order-123" number=41'


def test_what_is_remembered_of_requests_is_bounded() -> None:
    data = b"".join(frame(Show("a"), number) for number in range(1, CALLS_REMEMBERED_MAX + 3))
    last = CALLS_REMEMBERED_MAX + 2
    lines = decoded(dump(">", data), dump("<", codec.encode([0, last, {}])))
    assert said(lines)[-1] == f"#{last} answer {{}}"


def test_a_dump_in_any_chunking_gives_the_same_lines() -> None:
    data = dump(">", frame(ENQUEUE, 7)) + dump("<", codec.encode([0, 7, "order-123", 41]))
    assert decoded(*(data[i : i + 3] for i in range(0, len(data), 3))) == decoded(data)


def test_lines_of_json_are_shown_like_frames() -> None:
    data = (
        line("enqueue", request=7, id="a", kind="k", payload="secret")
        + line("status")
        + b'{"op": "lock\\u001b"}\n'
    )
    assert said(decoded(data)) == [
        '#7 enqueue id="a" kind="k" payload=<6 bytes>',
        "#0 status",
        '#0 op "lock\\u001b" (unknown)',
    ]


def test_answers_in_json_hide_results() -> None:
    data = b'{"ok": true, "request": 3, "result": "secret"}\n{"ok": false, "error": "conflict"}\n'
    assert said(decoded(data)) == ["#3 answer result=<6 bytes>", '#0 refused error="conflict"']


def test_other_lines_are_shown_escaped() -> None:
    assert said(decoded(b"stats\r\nx\x1b[31m\xff\n")) == ['"stats"', '"x\\u001b[31m\\u00ff"']


def test_a_ticket_is_never_shown() -> None:
    assert "ticket=<16 bytes>" in decoded(frame(Hello(1, "work", ticket=b"secret-secret-16")))[0]


def test_an_odd_name_is_quoted() -> None:
    assert said(decoded(b'{"ok": true, "a b\\u001b": 1}\n')) == ['#0 answer "a b\\u001b"=1']


def test_long_values_are_cut() -> None:
    (text,) = decoded(codec.encode([11, 1, "a" * 1000]))
    assert len(text) < 300
    assert text.endswith("...")


@pytest.mark.parametrize("data", [frame(ENQUEUE)[:-1], b"stats", b"\0", b"s"])
def test_a_recording_that_ends_early_says_so(data: bytes) -> None:
    assert decoded(data) == ["! the recording ends inside a frame or line"]


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x01\xc1", b"GET / HTTP/1.1\r\n", b"{nonsense\n"])
def test_what_cannot_be_read_is_said_once_and_ends_the_decoding(data: bytes) -> None:
    (text,) = decoded(data, frame(ENQUEUE))
    assert text.startswith("! ")
    assert text.endswith("nothing after this can be read")


def test_nothing_gives_nothing() -> None:
    assert decoded() == decoded(b"") == []
