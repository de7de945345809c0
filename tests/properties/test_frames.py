"""Frames and lines, over everything a peer could send."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import msgpack
from hypothesis import example, given
from hypothesis import strategies as st
from support.peers import connection, events, frame, introduced

from stoker.proto import codec, frames, limits, text
from stoker.proto.connection import Ended, Event, Refused, Request
from stoker.proto.decode import Decoder
from stoker.proto.errors import RemoteProtocolError
from stoker.proto.frames import FrameReader
from stoker.proto.messages import Enqueue
from stoker.proto.model import Role
from stoker.proto.ops import OPS, Op, build

PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.binary(max_size=40)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=8,
)
REQUEST_IDS = st.integers(0, limits.INTEGER_MAX)
HOSTILE = st.binary(max_size=300) | PLAIN.map(lambda value: bytes(msgpack.packb(value)))
"""Bodies: noise, and well-formed msgpack of the wrong shape."""


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(data) + 1) for point in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=10), CUTS)
def test_any_chunking_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    reader, found = FrameReader(), list[bytes]()
    for chunk in cut(b"".join(frames.header(len(body)) + body for body in bodies), cuts):
        reader.feed(chunk)
        while (body := reader.next_frame()) is not None:
            found.append(body)
    assert found == bodies
    assert reader.pending_bytes == 0


@given(st.integers(0, 127), REQUEST_IDS, st.lists(PLAIN, max_size=20))
def test_what_was_encoded_is_decoded_to_the_same(number: int, request: int, fields: list[Any]) -> None:
    body = codec.encode((number, request, *fields))[frames.HEADER_BYTES :]
    assert codec.decode(body) == [number, request, *fields]
    assert codec.peek_op(body) == number


@given(HOSTILE)
def test_hostile_bodies_raise_nothing_but_a_protocol_error(body: bytes) -> None:
    try:
        array = codec.decode(body, limits.FIELD_ITEMS_MAX)
    except RemoteProtocolError as error:
        assert error.code == "bad_frame"
    else:
        assert type(array[0]) is type(array[1]) is int


@given(st.sampled_from(OPS), st.lists(PLAIN, max_size=20))
def test_hostile_fields_raise_nothing_but_a_protocol_error(op: Op, fields: list[Any]) -> None:
    try:
        message = build(op, list(fields))
    except RemoteProtocolError as error:
        assert error.code in ("bad_message", "payload_too_large")
    else:
        assert len(message) == len(op.rules)


def outcome(event: Event) -> object:
    return (event.number, event.op.name, event.message) if isinstance(event, Request) else event


STREAMS = st.lists(
    HOSTILE
    | HOSTILE.filter(bool).map(lambda body: frames.header(len(body)) + body)
    | st.sampled_from(
        [frame(Enqueue("a", "k", b"p")), b"stats\r\n", b"{}\n", b'{"op": "status"}\n', b"quit\n"]
    ),
    max_size=8,
).map(b"".join)


@given(STREAMS, CUTS, st.sampled_from([None, Role.WORK, Role.SUPERVISE]))
@example(b"\0\0\0\1\xc1" * 3, [2], None)
@example(b"GET / HTTP/1.1\r\n\r\n{}\n", [], None)
def test_a_connection_says_the_same_of_hostile_bytes_in_any_chunking(
    data: bytes, cuts: list[int], role: Role | None
) -> None:
    whole, pieces = (connection() if role is None else introduced(role) for _ in range(2))
    expected = [outcome(event) for event in events(whole, data)]
    assert [outcome(event) for chunk in cut(data, cuts) for event in events(pieces, chunk)] == expected
    assert all(not isinstance(event, Ended) for event in expected[:-1])


@given(STREAMS)
def test_nothing_a_peer_is_told_in_text_mode_leaves_printable_ascii(data: bytes) -> None:
    for event in events(connection(), b"  \n" + data):
        if isinstance(event, Refused | Ended):
            assert all(0x20 <= byte <= 0x7E or byte in b"\r\n" for byte in event.data)


@given(st.binary(max_size=300) | PLAIN.map(repr).map(str.encode))
def test_a_hostile_line_raises_nothing_but_a_protocol_error(line: bytes) -> None:
    try:
        request = text.parse(b"{" + line)
    except RemoteProtocolError as error:
        assert error.code == "bad_frame"
    else:
        assert json.loads(b"{" + line) == request


@given(st.binary(max_size=60))
def test_bytes_survive_the_way_through_json(value: bytes) -> None:
    line = text.push_line("job", Enqueue("a", "k", value))
    assert text.fields(OPS[2], json.loads(line))[2] == value


@given(STREAMS, CUTS)
def test_decoding_a_recording_never_fails_and_never_leaves_printable_ascii(
    data: bytes, cuts: list[int]
) -> None:
    decoder = Decoder(preview=True)
    lines = [said for chunk in cut(data, cuts) for said in decoder.feed(chunk)]
    for said in (*lines, *decoder.finish()):
        assert said.isascii()
        assert said.isprintable()


def memory_peak(data: bytes) -> int:
    broker = introduced(Role.WORK) if data[:1] == b"\0" else connection()
    tracemalloc.start()
    try:
        events(broker, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_follows_the_bytes_received_not_those_announced() -> None:
    lists_in_lists = b"\xdc\x00\x03\x2c\x01" + b"\xdc\x04\x00" * 1000
    assert memory_peak(frames.header(limits.LISTING_FRAME_BYTES_MAX)) < 100_000
    assert memory_peak(frames.header(len(lists_in_lists)) + lists_in_lists) < 12 * limits.MIB


def test_a_flood_of_empty_lists_is_cut_off_before_it_costs_much() -> None:
    crowd = b"\xdc\x04\x00" + b"\x90" * 1024
    body = b"\x93\x2c\x01\xdc\x04\x00" + crowd * 200
    assert memory_peak(frames.header(len(body)) + body) < 4 * limits.MIB
    assert memory_peak(b'{"op": "status", "a": [' + b"[]," * 500_000 + b"1]}\n") < 8 * limits.MIB
