"""Frames that nobody should send: a grammar of damage, and mutations of what would be right.

Each frame of the grammar says which refusal it has to get. A mutated one cannot, so it comes last on its
connection, and is only held to this: it is answered, or refused by name, and nothing else happens.
"""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
from support.faults.misfits import MISFITS
from support.faults.misfits import RIGHT as RIGHT_MESSAGES
from support.faults.specimen import ANSWERED, NAMED, RIGHT, Specimen

from stoker.proto import limits
from stoker.proto.messages import Status
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE, BY_NUMBER, OPS
from stoker.proto.work import Progress

_BAD_FRAME = frozenset({"bad_frame"})
_TOO_LARGE = frozenset({"frame_too_large"})

HARMLESS: dict[Role, int] = {Role.ADMIN: 16, Role.WORK: 44, Role.SUPERVISE: 44}
"""An op of each role whose fields do not matter: `status` and `heartbeat`."""

LARGEST: dict[Role, tuple[int, int]] = {
    Role.ADMIN: (10, limits.ENQUEUE_FRAME_BYTES_MAX),
    Role.WORK: (41, limits.LISTING_FRAME_BYTES_MAX),
    Role.SUPERVISE: (50, limits.POOL_FRAME_BYTES_MAX),
}
"""The op with the largest frame, and the most that a header may announce."""


_ALSO_LEGAL: dict[Role, set[str]] = {
    Role.ADMIN: {"status", "drain", "snapshot", "follow"},
    Role.WORK: {"progress", "output", "help"},
    Role.SUPERVISE: {"help", "pool", "recalled"},
}
"""Legal as well, though not among what is said here."""

_OVERSIZE: dict[Role, tuple[int, int]] = {
    Role.ADMIN: (HARMLESS[Role.ADMIN], limits.CONTROL_FRAME_BYTES_MAX),
    Role.WORK: (43, limits.CONTROL_FRAME_BYTES_MAX),
    Role.SUPERVISE: (51, limits.LISTING_FRAME_BYTES_MAX),
}
"""An op, and so much of a field that its frame is too long."""


def packed(*values: Any) -> bytes:
    """One msgpack array."""
    data: bytes = msgpack.packb(values, use_bin_type=True)
    return data


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


class Frames:
    """Makes frames for connections of one role. Every request has an id of its own."""

    def __init__(self, rng: random.Random, role: Role) -> None:
        self._rng = rng
        self._role = role
        self._last_request = 1

    def _request(self) -> int:
        self._last_request += 1
        return self._last_request

    # --- what is right -------------------------------------------------------------------------------------

    def right(self) -> Specimen:
        """A message of the role, as it should be."""
        message = self._rng.choice(RIGHT_MESSAGES[self._role])
        return self._whole("right", BY_MESSAGE[type(message)].number, message, RIGHT)

    def status(self) -> Specimen:
        """The costly one that is always legal for a client."""
        return self._whole("status", BY_MESSAGE[Status].number, (), frozenset({ANSWERED}))

    def _whole(self, name: str, op: int, fields: Sequence[Any], verdicts: frozenset[str]) -> Specimen:
        request = self._request()
        return Specimen(name, framed(packed(op, request, *fields)), request, verdicts)

    # --- what costs one request ------------------------------------------------------------------------------

    def misfit(self) -> Specimen:
        """One value of one field is wrong."""
        message, code = self._rng.choice(MISFITS[self._role])
        name = f"misfit of {type(message).__name__}"
        return self._whole(name, BY_MESSAGE[type(message)].number, message, frozenset({code}))

    def missing(self) -> Specimen:
        """Fields that are required are not there."""
        op = self._rng.choice([op for op in self._own_ops() if op.required])
        message = next(each for each in RIGHT_MESSAGES[self._role] if type(each) is op.message)
        fields = message[: self._rng.randrange(op.required)]
        return self._whole("missing", op.number, fields, frozenset({"bad_message"}))

    def _own_ops(self) -> list[Any]:
        return [BY_MESSAGE[type(message)] for message in RIGHT_MESSAGES[self._role]]

    def unknown_op(self) -> Specimen:
        op = self._rng.choice([number for number in range(-5, 300) if number not in BY_NUMBER])
        return self._whole("unknown op", op, ["x", 1], frozenset({"unknown_op"}))

    def foreign_op(self) -> Specimen:
        """An op of another role, or one that only the broker says."""
        own = {op.name for op in self._own_ops()} | _ALSO_LEGAL[self._role]
        op = self._rng.choice([op for op in OPS if op.name not in own])
        return self._whole("foreign op", op.number, [], frozenset({"forbidden", "wrong_state"}))

    def request_zero(self) -> Specimen:
        body = packed(HARMLESS[self._role], 0)
        return Specimen("request id 0", framed(body), 0, frozenset({"bad_message"}))

    def deep_but_ignored(self) -> Specimen:
        """A field of some later release, nested as deep as msgpack goes."""
        request = self._request()
        depth = self._rng.randrange(1, 900)
        fields = packed(*(("h-1",) if self._role is Role.ADMIN else ([], [])))[1:]
        count = 1 if self._role is Role.ADMIN else 2
        op = 17 if self._role is Role.ADMIN else 44
        body = bytes([0x90 + 3 + count, op]) + _packed_one(request) + fields + b"\x91" * depth + b"\xc0"
        return Specimen("deep, ignored", framed(body), request, RIGHT)

    # --- what ends the connection ------------------------------------------------------------------------------

    def bad_length(self) -> Specimen:
        """A header that announces nothing, or too much."""
        _, most = LARGEST[self._role]
        lengths = (0, most + 1, most * 2, 2**24 - 1, 2**24, 0x20202020, 0x7B22, 2**31, 2**32 - 1)
        length = self._rng.choice([length for length in lengths if not 0 < length <= most])
        verdict = _TOO_LARGE if length else _BAD_FRAME
        data = struct.pack(">I", length) + self._rng.randbytes(self._rng.randrange(40))
        return Specimen(f"length {length}", data, 0, verdict, fatal=True)

    def too_large_for_its_op(self) -> Specimen:
        """The connection could send so much, but not for this op."""
        op, size = _OVERSIZE[self._role]
        body = packed(op, self._request(), bytes(size))
        return Specimen("too large for its op", framed(body), 0, _TOO_LARGE, fatal=True)

    def bad_body(self) -> Specimen:
        """A whole frame that is not one array `[op, request id, fields...]` of plain values."""
        name, make = self._rng.choice(_BAD_BODIES)
        return Specimen(name, framed(make(self._rng, HARMLESS[self._role])), 0, _BAD_FRAME, fatal=True)

    def deep(self) -> Specimen:
        """Deeper than a decoder should follow: lists, maps, or both in turn."""
        step, what = self._rng.choice(
            ((b"\x91", "lists"), (b"\x81\xa1k", "maps"), (b"\x91\x81\xa1k", "both"))
        )
        depth = max(self._rng.choice((1024, 2000, 10_000, 100_000)) // len(step), 1100)
        body = self._in_largest(step * depth + b"\xc0")
        return Specimen(f"{depth} {what} in each other", framed(body), 0, _BAD_FRAME, fatal=True)

    def crowded(self) -> Specimen:
        """More lists and maps than a frame may hold."""
        inner = b"\xdc\x00\x40" + self._rng.choice((b"\x90", b"\x80")) * 64
        body = self._in_largest(b"\xdc\x00\x40" + inner * 64)
        return Specimen("crowded", framed(body), 0, _BAD_FRAME, fatal=True)

    def long_list(self) -> Specimen:
        """A list that is longer than any op of the role allows."""
        count = self._rng.choice((limits.LIST_ITEMS_MAX + 1, 5000, 50_000))
        if self._rng.random() < 0.5:
            body = packed(HARMLESS[self._role], self._request(), *[0] * count)
        else:
            body = self._in_largest(b"\xdd" + struct.pack(">I", count) + b"\xc0" * count)
        return Specimen(f"list of {count}", framed(body), 0, _BAD_FRAME, fatal=True)

    def _in_largest(self, field: bytes) -> bytes:
        op, most = LARGEST[self._role]
        body = b"\x93" + bytes([op]) + _packed_one(self._request()) + field
        assert len(body) <= most
        return body

    # --- what cannot be known -----------------------------------------------------------------------------------

    def mutated(self) -> Specimen:
        """Something of the above, or noise, with a few bytes changed."""
        rng = self._rng
        made = rng.choice((self.right, self.right, self.misfit, self.bad_body, self.foreign_op))()
        data = bytearray(made.data if rng.random() < 0.9 else framed(rng.randbytes(rng.randrange(1, 80))))
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            rng.choice(_MUTATIONS)(rng, data)
        if rng.random() < 0.6 and len(data) > 4:
            # With the right length the damage gets as far as the decoder.
            data[:4] = struct.pack(">I", len(data) - 4)
        return Specimen("mutated", bytes(data), 0, NAMED, silent=True)

    def progress(self) -> Specimen:
        """The one request that is never answered."""
        body = packed(BY_MESSAGE[Progress].number, self._request(), *Progress([1, 1], 1, 2, "half"))
        return Specimen("progress", framed(body), 0, frozenset(), silent=True)

    # --- all of it ----------------------------------------------------------------------------------------------

    def harmless(self, count: int) -> list[Specimen]:
        """So many that leave the connection alive."""
        makers: list[Callable[[], Specimen]] = [self.misfit] * 6 + [self.right] * 3
        makers += [self.missing, self.unknown_op, self.foreign_op, self.request_zero, self.deep_but_ignored]
        made = [self._rng.choice(makers)() for _ in range(count)]
        if self._role is Role.ADMIN:
            made[::40] = [self.status() for _ in made[::40]]
        if self._role is Role.WORK:
            made[::40] = [self.progress() for _ in made[::40]]
        return made

    def fatal(self, count: int) -> list[Specimen]:
        """So many that end it."""
        makers = [self.bad_body] * 40 + [self.bad_length] * 10
        makers += [self.crowded, self.long_list, self.too_large_for_its_op]
        made = [self._rng.choice(makers)() for _ in range(count)]
        made[::50] = [self.deep() for _ in made[::50]]
        return made


def _packed_one(value: object) -> bytes:
    data: bytes = msgpack.packb(value)
    return data


_Body = Callable[[random.Random, int], bytes]


def _in_a_field(value: bytes) -> _Body:
    """As the one field, alone or in a list, of an op that has no use for it."""

    def body(rng: random.Random, op: int) -> bytes:
        inner = rng.choice((value, b"\x91" + value, b"\x81\xa1k" + value))
        return b"\x93" + bytes([op]) + _packed_one(rng.randrange(1, 2**16)) + inner

    return body


def _as_it_is(*bodies: bytes) -> _Body:
    return lambda rng, _: rng.choice(bodies)


_EXTENSIONS = (
    b"\xc7\x00\x01",
    b"\xc7\x02\x05ab",
    b"\xc8\x00\x00\x01",
    b"\xc9\x00\x00\x00\x00\x01",
    b"\xd4\x01a",
    b"\xd5\x7fab",
    b"\xd6\xff\x00\x00\x00\x01",
    b"\xd7\xff" + bytes(8),
    b"\xd8\x01" + bytes(16),
    b"\xc7\x0c\xff" + bytes(12),
)
_KEYS = (b"\x01", b"\xc0", b"\xc3", b"\xc4\x01k", b"\xcb" + bytes(8), b"\x90", b"\xff")
_CLAIMS = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\xdc\xff\xff",
    b"\xde\xff\xff",
    b"\xda\xff\xffabc",
    b"\xc5\xff\xff",
    b"\xdd\x00\x10\x00\x00\x01",
)
_NOT_UTF8 = (b"\xa1\xff", b"\xa2\xc3\x28", b"\xa3\xed\xa0\x80", b"\xa4\xf8\x88\x80\x80", b"\xd9\x02\xc0\x80")

_BAD_BODIES: tuple[tuple[str, _Body], ...] = (
    ("reserved byte", _in_a_field(b"\xc1")),
    ("nothing but the reserved byte", _as_it_is(b"\xc1", b"\xc1" * 9)),
    *((f"extension {each.hex()}", _in_a_field(each)) for each in _EXTENSIONS),
    *((f"key {key.hex()}", _in_a_field(b"\x81" + key + b"\x01")) for key in _KEYS),
    ("duplicate key", _in_a_field(b"\x82\xa1k\x01\xa1k\x02")),
    *((f"claim {claim.hex()}", _in_a_field(claim)) for claim in _CLAIMS),
    *((f"not UTF-8 {text.hex()}", _in_a_field(text)) for text in _NOT_UTF8),
    ("trailing bytes", lambda rng, op: packed(op, 7) + rng.randbytes(rng.randrange(1, 9))),
    ("two arrays", lambda _, op: packed(op, 7) * 2),
    ("cut short", lambda rng, op: packed(op, 7, "text", [1, 2], b"bytes")[: rng.randrange(1, 15)]),
    (
        "no array",
        _as_it_is(b"\x80", b"\x2a", b"\xa1x", b"\xc0", b"\xc3", b"\xca\x00\x00\x00\x00", b"\xc4\x00"),
    ),
    ("a map", lambda _, op: b"\x82\x00" + bytes([op]) + b"\x01\x07"),
    ("too short", lambda _, op: b"\x91" + bytes([op])),
    ("empty array", _as_it_is(b"\x90", b"\xdc\x00\x00", b"\xdd\x00\x00\x00\x00")),
    (
        "op is no number",
        lambda rng, op: packed(rng.choice((True, 1.0 * op, "status", None, b"\x10", [op])), 7),
    ),
    (
        "request is no number",
        lambda rng, op: packed(op, rng.choice((True, -1, 7.0, "7", None, [7], 2**53 + 1, 2**64 - 1))),
    ),
    ("op in two bytes", lambda _, op: b"\x92\xcc" + bytes([op]) + b"\x07"),
    ("op in nine bytes", lambda _, op: b"\x92\xcf" + bytes(7) + bytes([op]) + b"\x07"),
    ("array32", lambda _, op: b"\xdd\x00\x00\x00\x02" + bytes([op]) + b"\x07"),
)


def _flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 0x7F, 0x80, 0x90, 0xC0, 0xC1, 0xC4, 0xDC, 0xDF, 0xFF))


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randrange(1, 5))


def _delete(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    if len(data) > at + 4:
        del data[at : at + rng.randrange(1, 4)]


def _double(rng: random.Random, data: bytearray) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + 20]


_MUTATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (_flip, _set, _insert, _delete, _double)
