"""Lines that nobody should send: the text mode's share of what `hostile_bytes` does for frames."""

import json
import random
from collections.abc import Callable
from typing import Any

from support.faults.misfits import CLIENT, MISFITS
from support.faults.specimen import NAMED, RIGHT, Specimen

from stoker.proto import limits
from stoker.proto.messages import Enqueue
from stoker.proto.model import Role
from stoker.proto.ops import BY_MESSAGE

UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
"""beanstalkd's word for any other line; not a code of stoker's, but a verdict."""

_BAD_LINE = frozenset({"bad_frame"})
_TOO_LONG = frozenset({"frame_too_large"})


class Lines:
    """Makes lines for a connection of a client. Every request has an id of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._last_request = 1

    def _json(self, name: str, op: str, fields: dict[str, Any], verdicts: frozenset[str]) -> Specimen:
        self._last_request += 1
        line = json.dumps({"op": op, "request": self._last_request, **fields}).encode() + b"\n"
        return Specimen(name, line, self._last_request, verdicts)

    def right(self) -> Specimen:
        message = self._rng.choice(CLIENT)
        return self._json("right", BY_MESSAGE[type(message)].name, _fields(message), RIGHT)

    def misfit(self) -> Specimen:
        """One value of one field is wrong, of those that JSON can spell."""
        message, code = self._rng.choice(_MISFITS)
        name = f"misfit of {type(message).__name__}"
        return self._json(name, BY_MESSAGE[type(message)].name, _fields(message), frozenset({code}))

    def bad_payload(self) -> Specimen:
        payload: Any = self._rng.choice(
            (1, True, [], {"base64": 1}, {"base64": "*"}, {"base64": "YQ"}, {"hex": "00"})
        )
        fields = {"id": "h-1", "kind": "h-kind", "payload": payload}
        return self._json("bad payload", "enqueue", fields, frozenset({"bad_message"}))

    def half_a_pair(self) -> Specimen:
        """JSON can spell half of a surrogate pair, which is no text."""
        fields = {"id": "h-\ud800", "kind": "h-kind", "payload": "x"}
        return self._json("half a pair", "enqueue", fields, frozenset({"bad_message"}))

    def unknown_op(self) -> Specimen:
        op: Any = self._rng.choice(
            ("", "__class__", "os.system", "status ", "STATUS", "jobs;drop", "e" * 5000)
        )
        return self._json("unknown op", op, {}, frozenset({"unknown_op"}))

    def foreign_op(self) -> Specimen:
        op = self._rng.choice(("hello", "ack", "exited", "pool", "job", "kill", "progress"))
        return self._json("foreign op", op, {}, frozenset({"forbidden", "wrong_state"}))

    def bad_request_id(self) -> Specimen:
        number: Any = self._rng.choice((True, -1, 1.5, "1", None, [], 2**53 + 1, 10**400))
        line = json.dumps({"op": "why", "id": "h-1", "request": number}).encode() + b"\n"
        return Specimen("bad request id", line, 0, frozenset({"bad_message"}))

    def command(self) -> Specimen:
        """Another line, which nobody has defined."""
        noise = self._rng.randbytes(self._rng.randrange(1, limits.COMMAND_LINE_BYTES_MAX)).translate(
            None, b"\n{"
        )
        line = self._rng.choice((b"put 0 0 60 1", b"reserve", b"; rm -rf /", b"\x1b[2J", noise, b"GET"))
        return Specimen("command", line + b"\n", 0, frozenset({UNKNOWN_COMMAND}))

    def bad_line(self) -> Specimen:
        """Begins like JSON, and is none that may be read."""
        name, line = self._rng.choice(_BAD_LINES)
        return Specimen(name, line + b"\n", 0, _BAD_LINE, fatal=True)

    def deep(self) -> Specimen:
        depth = self._rng.choice((5000, 20_000, 100_000))
        opens, closes = self._rng.choice(((b"[", b"]"), (b'{"k":', b"}")))
        line = b'{"op":"status","x":' + opens * depth + b"1" + closes * depth + b"}\n"
        return Specimen(f"{depth} in each other", line, 0, _BAD_LINE, fatal=True)

    def long_line(self) -> Specimen:
        size = self._rng.choice((limits.COMMAND_LINE_BYTES_MAX + 1, 5000))
        return Specimen("long command", b"a" * size + b"\n", 0, _TOO_LONG, fatal=True)

    def long_request(self) -> Specimen:
        size = limits.TEXT_FACTOR * limits.CONTROL_FRAME_BYTES_MAX
        line = b'{"op":"status","x":"' + b"x" * size + b'"}\n'
        return Specimen("long request", line, 0, _TOO_LONG, fatal=True)

    def numbers(self) -> Specimen:
        """So many numbers in one line that they cost more than the line."""
        count = self._rng.choice((100_000, 800_000))
        line = b'{"op":"enqueue","x":[' + b"1," * count + b"1]}\n"
        return Specimen(f"{count} numbers", line, 0, _BAD_LINE, fatal=True)

    def keys(self) -> Specimen:
        line = b'{"op":"enqueue",' + b",".join(b'"%x":1' % number for number in range(100_000)) + b"}\n"
        return Specimen("100,000 keys", line, 0, _BAD_LINE, fatal=True)

    def mutated(self) -> Specimen:
        rng = self._rng
        data = bytearray(rng.choice((self.right, self.misfit, self.bad_line, self.command))().data)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(2)] = rng.choice((b'"', b"{", b"[", b"\\", b"\n", rng.randbytes(1)))
        verdicts = NAMED | {UNKNOWN_COMMAND}
        return Specimen("mutated", bytes(data), 0, verdicts, silent=True)

    def harmless(self, count: int) -> list[Specimen]:
        """So many that leave the connection alive."""
        makers: list[Callable[[], Specimen]] = [self.misfit] * 5 + [self.right] * 3 + [self.command] * 2
        makers += [self.bad_payload, self.half_a_pair, self.unknown_op, self.foreign_op, self.bad_request_id]
        return [self._rng.choice(makers)() for _ in range(count)]

    def fatal(self, count: int) -> list[Specimen]:
        """So many that end it."""
        makers: list[Callable[[], Specimen]] = [self.bad_line] * 40 + [self.long_line] * 10
        makers += [self.deep, self.long_request]
        made = [self._rng.choice(makers)() for _ in range(count)]
        return [*made, self.numbers(), self.keys()]


def _fields(message: Any) -> dict[str, Any]:
    """By name, without those that have their default, and with bytes as text."""
    named = message._asdict().items()
    defaults = message._field_defaults
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in named
        if name not in defaults or value is not defaults[name]
    }


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _spells(message: Any) -> bool:
    """Whether JSON can say it. What is wrong with a payload is spelled differently there."""
    if isinstance(message, Enqueue) and type(message.payload) is not bytes:
        return False
    return all(_is_json(value) or name == "payload" for name, value in message._asdict().items())


_MISFITS = [misfit for misfit in MISFITS[Role.ADMIN] if _spells(misfit.message)]

_BAD_LINES: tuple[tuple[str, bytes], ...] = (
    ("no end", b'{"op":"status"'),
    ("two values", b'{"op":"status"} {}'),
    ("nothing in it", b"{"),
    ("a word", b"{true}"),
    ("single quotes", b"{'op':'status'}"),
    ("comma at the end", b'{"op":"status",}'),
    ("duplicate key", b'{"op":"status","op":"drop"}'),
    ("duplicate key inside", b'{"op":"status","x":{"a":1,"a":2}}'),
    ("NaN", b'{"op":"status","x":NaN}'),
    ("infinity", b'{"op":"status","x":-Infinity}'),
    ("not UTF-8", b'{"op":"\xff"}'),
    ("half a pair in UTF-8", b'{"op":"\xed\xa0\x80"}'),
    ("too long in UTF-8", b'{"op":"\xc0\xaf"}'),
    ("zero byte", b'{"op":"status","x":"\x00"}'),
    ("control character", b'{"op":"status","x":"\x1b[2J"}'),
    ("digits without end", b'{"op":"status","x":' + b"9" * 5000 + b"}"),
    ("crowd of lists", b'{"op":"status","x":[' + b"[]," * 5000 + b"1]}"),
    ("crowd of maps", b'{"op":"status","x":[' + b"{}," * 5000 + b"1]}"),
)
