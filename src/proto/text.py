"""Text mode: lines on the same socket, for people with `socat` and for scripts.

A line that begins with `{` is a request in JSON and gets one line of JSON back; everything a frame
can say can be said so, by the names of the fields. All other lines are commands in beanstalkd's
form, see `beanstalk.py`. What goes out is ASCII without control characters, so nothing a job
contains can command the terminal it is shown on.

A line that cannot be read ends the connection. That is what protects a script which pastes data
into JSON by hand: the second half of a payload with a newline in it is never taken for a request.
"""

import binascii
import json
import re
from typing import Any

from . import limits
from .codec import is_exactly, unique_map
from .errors import RemoteProtocolError
from .messages import Message, Refusal
from .ops import Op

_HTTP = re.compile(rb"(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|CONNECT|TRACE) |PRI \* HTTP")
_STRING = re.compile(rb'"[^"]*"?')
"""A JSON string without escapes; without its end if the line lacks it, so that no search starts over."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_text(first_byte: int) -> bool:
    """Printable ASCII: the connection is in text mode. A frame begins with a zero."""
    return 0x20 <= first_byte <= 0x7E


def is_json(line: bytes) -> bool:
    """A request in JSON, by its first byte; anything else is a command."""
    return line[:1] == b"{"


_ENVELOPE = frozenset({"op", "request"})
"""What a line says besides the fields of its op."""


class LineReader:
    """Collects bytes, hands out lines without their ends. `json_bytes_max` may change between lines."""

    __slots__ = ("_buffer", "_is_first", "_searched", "json_bytes_max")

    def __init__(self, json_bytes_max: int) -> None:
        self.json_bytes_max = json_bytes_max
        self._buffer = bytearray()
        self._searched = 0
        self._is_first = True

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes as they came from the peer."""
        self._buffer += data

    def next_line(self) -> bytes | None:
        """The next whole line, or None. RemoteProtocolError if it is too long, or the first is HTTP."""
        end = self._buffer.find(b"\n", self._searched)
        self._refuse_http()
        self._refuse_long(len(self._buffer) if end < 0 else end)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched, self._is_first = 0, False
        return line.removesuffix(b"\r")

    def _refuse_http(self) -> None:
        # A browser or a script tricked into sending here must not reach the second line, where the
        # body of its request would be taken for commands.
        if self._is_first and _HTTP.match(self._buffer):
            raise RemoteProtocolError("http_refused", "this is not an HTTP port")

    def _refuse_long(self, length: int) -> None:
        is_request = self._buffer.startswith(b"{")
        length_max = self.json_bytes_max if is_request else limits.COMMAND_LINE_BYTES_MAX
        if length > length_max:
            raise RemoteProtocolError("frame_too_large", f"line over the limit of {length_max} bytes")

    @property
    def incomplete(self) -> bool:
        """A line has begun and its end is not there."""
        return bool(self._buffer) and b"\n" not in self._buffer


def parse(line: bytes) -> dict[str, Any]:
    """The map in one line of JSON. RemoteProtocolError(`bad_frame`) for anything else."""
    _refuse_crowded(line)
    try:
        value: Any = json.loads(line.decode(), object_pairs_hook=unique_map, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        # Where, not what: the words differ between releases of Python.
        raise RemoteProtocolError(
            "bad_frame", f"not a line of JSON from character {error.pos + 1}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("bad_frame", f"not a line of JSON: {str(error)[:120]}") from error
    request: dict[str, Any] = value
    return request


def _refuse_crowded(line: bytes) -> None:
    # An empty list is two bytes here and seventy in memory, a number two and thirty. What is inside strings
    # costs nothing, so a line that looks crowded is counted again without its strings.
    if _is_crowded(line) and _is_crowded(_without_strings(line)):
        raise RemoteProtocolError(
            "bad_frame",
            f"more than {limits.CONTAINERS_MAX} lists and maps, or {limits.ITEMS_MAX} items, in one line",
        )


def _is_crowded(line: bytes) -> bool:
    return line.count(b"[") + line.count(b"{") > limits.CONTAINERS_MAX or line.count(b",") > limits.ITEMS_MAX


def _without_strings(line: bytes) -> bytes:
    # Two backslashes first: the second of them escapes nothing.
    unescaped = line.replace(rb"\\", b"").replace(rb"\"", b"")
    if unescaped.count(b'"') > 4 * limits.ITEMS_MAX:
        # More strings than there may be keys and items: not worth the search for their ends.
        return line
    return _STRING.sub(b"", unescaped)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def fields(op: Op, request: dict[str, Any]) -> list[Any]:
    """The fields of a request in the order of the wire, unchecked but for their names.

    A name that the op does not have is refused: it is a slip of a person more often than a field of a
    later release, and a `delay` that is dropped in silence would run the job at once.
    """
    result: list[Any] = []
    names: tuple[str, ...] = op.message._fields
    unknown = request.keys() - _ENVELOPE - set(names)
    if unknown:
        known = ", ".join(names) or "none"
        raise RemoteProtocolError(
            "bad_message", f"{op.name} has no field {min(unknown)[:80]!r}; its fields: {known}"
        )
    for index, (name, rule) in enumerate(zip(names, op.rules, strict=True)):
        if name not in request and index < op.required:
            raise RemoteProtocolError("bad_message", f"{op.name}: field `{name}` is missing")
        value: Any = request.get(name, op.defaults[index])
        result.append(_to_bytes(op, name, value) if rule.is_bytes else value)
    return result


def _to_bytes(op: Op, name: str, value: Any) -> Any:
    """Text as its UTF-8, `{"base64": ...}` as what it encodes; a default as it is, and null for the rule."""
    try:
        if type(value) is str:
            return value.encode()
        if is_exactly(value, dict) and len(value) == 1 and "base64" in value:
            return binascii.a2b_base64(value["base64"], strict_mode=True)
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError("bad_message", f"{op.name}: `{name}` is not valid: {error}") from error
    if value is None or type(value) is bytes:
        return value
    raise RemoteProtocolError("bad_message", f'{op.name}: `{name}` must be a string or {{"base64": "..."}}')


def answer_line(number: int, message: Message) -> bytes:
    """`{"ok": true, "request": N, fields...}`. Without `request` if the peer gave none."""
    return _line({"ok": True, **_echo(number), **_by_name(message)})


def refusal_line(number: int, refusal: Refusal) -> bytes:
    """`{"ok": false, "request": N, "error": code, "message": ..., "detail": {...}}`."""
    code, message, detail = refusal
    return _line({"ok": False, **_echo(number), "error": code, "message": message, "detail": dict(detail)})


def push_line(name: str, message: Message) -> bytes:
    """`{"op": "job", fields...}`."""
    return _line({"op": name, **_by_name(message)})


def _echo(number: int) -> dict[str, int]:
    return {"request": number} if number else {}


def _by_name(message: Message) -> dict[str, Any]:
    named: Any = message
    result: dict[str, Any] = named._asdict()
    return result


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, default=_spell, allow_nan=False).encode("ascii") + b"\n"


def _spell(value: Any) -> Any:
    """What JSON has no word for: bytes, as text if they are text that a person can read."""
    if isinstance(value, bytes):
        text = _readable(value)
        return {"base64": binascii.b2a_base64(value, newline=False).decode()} if text is None else text
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _readable(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text
