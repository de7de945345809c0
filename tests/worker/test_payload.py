"""Payloads: which bytes are arguments, and that everything else is refused as what it is."""

import json
import pickle
from datetime import UTC, datetime

import msgpack
import pytest

from stoker.client.values import encode_arguments
from stoker.worker.payload import PayloadError, decode_arguments

Arguments = tuple[list[object], dict[str, object]]


AT = datetime(2026, 7, 20, 10, 15, tzinfo=UTC)
SPELLED = '{"$datetime": "2026-07-20T10:15:00Z"}'

GOOD: list[tuple[bytes, Arguments]] = [
    (b"", ([], {})),
    (b"[]", ([], {})),
    (b'[1, "two", [3]]', ([1, "two", [3]], {})),
    (b'{"a": 1}', ([], {"a": 1})),
    (msgpack.packb([[1, "two"], {"a": b"\x00"}]), ([1, "two"], {"a": b"\x00"})),
    (f"[[{SPELLED}]]".encode(), ([[AT]], {})),
    (f'{{"at": {SPELLED}}}'.encode(), ([], {"at": AT})),
    (msgpack.packb([[], {"at": {"$datetime": "2026-07-20T12:15:00+02:00"}}]), ([], {"at": AT})),
]


@pytest.mark.parametrize(("payload", "arguments"), GOOD)
def test_payload_gives_its_arguments(payload: bytes, arguments: Arguments) -> None:
    assert decode_arguments(payload) == arguments


def test_what_the_client_encodes_comes_back() -> None:
    payload = encode_arguments(["x", 2**63, None, 1.5], {"body": {"event": "paid"}})
    assert decode_arguments(payload) == (["x", 2**63, None, 1.5], {"body": {"event": "paid"}})


@pytest.mark.parametrize(
    "payload",
    [
        b"[1, 2",
        b"{bad json}",
        b"[NaN]",
        b'[{"$datetime": "soon"}]',
        SPELLED.encode(),
        b"[" * 100_000,
        b"hello",
        b"\xc1",
        msgpack.packb([1, 2, 3]),
        msgpack.packb([{}, []]),
        msgpack.packb({"a": 1}),
        msgpack.packb([[], {}]) + b"x",
        msgpack.packb([[msgpack.ExtType(1, b"x")], {}]),
        pickle.dumps([[1], {}]),
        json.dumps("text").encode(),
    ],
)
def test_anything_else_is_a_payload_error(payload: bytes) -> None:
    with pytest.raises(PayloadError):
        decode_arguments(payload)
