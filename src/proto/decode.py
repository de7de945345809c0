"""Recorded bytes to readable lines: what `stoker decode` prints.

Takes one direction of a connection (`socat -r FILE`), or both as `socat -x` dumps them, in any
chunking. Each frame or line becomes one line of ASCII: its size, the request id, the op and the
fields by name, those left at their default left out. Of payloads, results and outputs only the
length is shown, unless `preview` asks for their beginning: they are other people's data. Nothing in
a recording reaches the terminal unescaped.

An answer does not say what it answers. With both directions at hand the request is remembered, and
the fields of its answer get their names; with one, they are shown in their order.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import codec, limits, text
from .dump import DumpReader, is_dump
from .errors import RemoteProtocolError
from .frames import HEADER_BYTES, FrameReader
from .messages import ANSWER, ERROR, Refusal
from .ops import BY_NAME, BY_NUMBER, Op

PREVIEW_BYTES = 40
CALLS_REMEMBERED_MAX = 1024
"""Unanswered requests whose op is kept: a recording of requests alone never answers any."""

_SHOWN_CHARACTERS = 200

_OPAQUE = frozenset({"payload", "result", "output", "ticket"})
"""Fields whose content is not shown, wherever they appear. A ticket is as good as a password."""


class Decoder:
    """`feed` bytes and print the lines it gives; `finish` says what was left over."""

    def __init__(self, *, preview: bool = False) -> None:
        self._preview = preview
        self._calls: dict[int, Op] = {}
        self._head = b""
        self._dump: DumpReader | None = None
        self._streams: dict[str, _Stream] = {}
        self._is_begun = False

    @property
    def is_lost(self) -> bool:
        """Something of it was neither frames nor lines, and what followed was not read."""
        return any(stream.is_lost for stream in self._streams.values())

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that these bytes complete."""
        self._head += data
        if not self._is_begun:
            if len(self._head) < 2:
                return
            self._is_begun = True
            self._dump = DumpReader() if is_dump(self._head) else None
        yield from self._feed_dump(self._dump) if self._dump else self._feed_stream()

    def finish(self) -> Iterator[str]:
        """Call once, at the end."""
        if self._head and self._dump is None:
            yield from self._feed_stream()
        for direction, stream in self._streams.items():
            yield from _marked(direction, stream.finish())

    def _feed_stream(self) -> Iterator[str]:
        data, self._head = self._head, b""
        yield from self._stream("").feed(data)

    def _feed_dump(self, dump: DumpReader) -> Iterator[str]:
        *lines, self._head = self._head.split(b"\n")
        for line in lines:
            direction, shown = dump.line(line)
            if shown:
                yield from _marked(direction, self._stream(direction).feed(shown))

    def _stream(self, direction: str) -> "_Stream":
        if direction not in self._streams:
            self._streams[direction] = _Stream(self._calls, self._preview)
        return self._streams[direction]


def _marked(direction: str, lines: Iterable[str]) -> Iterator[str]:
    return (f"{direction} {line}" for line in lines) if direction else iter(lines)


class _Stream:
    """One direction."""

    def __init__(self, calls: dict[int, Op], preview: bool) -> None:
        self._calls = calls
        self._preview = preview
        self._frames = FrameReader()
        self._lines = text.LineReader(limits.TEXT_FACTOR * limits.FRAME_BYTES_MAX)
        self._is_text: bool | None = None
        self.is_lost = False

    def feed(self, data: bytes) -> Iterator[str]:
        if self._is_text is None:
            self._is_text = text.is_text(data[0])
        if self.is_lost:
            return
        (self._lines if self._is_text else self._frames).feed(data)
        try:
            yield from self._whole_lines() if self._is_text else self._whole_frames()
        except RemoteProtocolError as error:
            self.is_lost = True
            yield f"! {error.code}: {_word(error.message)}; nothing after this can be read"

    def finish(self) -> Iterator[str]:
        if not self.is_lost and (self._lines.incomplete or self._frames.pending_bytes):
            yield "! the recording ends inside a frame or line"

    def _whole_frames(self) -> Iterator[str]:
        while (body := self._frames.next_frame()) is not None:
            number, request, *fields = codec.decode(body)
            yield _line(len(body) + HEADER_BYTES, f"#{request} {self._frame(number, request, fields)}")

    def _frame(self, number: int, request: int, fields: list[Any]) -> str:
        if number == ERROR:
            self._calls.pop(request, None)
            return f"refused {self._fields(_named(Refusal, fields))}"
        if number == ANSWER:
            op = self._calls.pop(request, None)
            named = _named(op.answer, fields) if op else None
            said = self._fields(named) if named is not None else self._values(fields)
            return f"answer {op.name + ' ' if op else ''}{said}"
        op = BY_NUMBER.get(number)
        if op is None:
            return f"op {number} (unknown) {self._values(fields)}"
        self._remember(request, op)
        return f"{op.name} {self._fields(_named(op.message, fields))}"

    def _remember(self, request: int, op: Op) -> None:
        if op.answer is not None and len(self._calls) < CALLS_REMEMBERED_MAX:
            self._calls[request] = op

    def _whole_lines(self) -> Iterator[str]:
        while (line := self._lines.next_line()) is not None:
            said = self._json(line) if text.is_json(line) else _word(line.decode("latin-1"))
            yield _line(len(line) + 1, said)

    def _json(self, line: bytes) -> str:
        request = text.parse(line)
        number, name, ok = request.pop("request", 0), request.pop("op", None), request.pop("ok", None)
        if ok is not None:
            return f"#{_word(number)} {'answer' if ok else 'refused'} {self._fields(request)}"
        said = name if isinstance(name, str) and name in BY_NAME else f"op {_word(name)} (unknown)"
        return f"#{_word(number)} {said} {self._fields(request)}"

    # --- values --------------------------------------------------------------------------------------

    def _fields(self, named: Mapping[str, Any]) -> str:
        return " ".join(f"{_name(name)}={self._value(value, name)}" for name, value in named.items())

    def _values(self, values: Sequence[Any]) -> str:
        return " ".join(self._value(value) for value in values)

    def _value(self, value: Any, name: str = "") -> str:
        if isinstance(value, bytes):
            return self._opaque(value)
        if name in _OPAQUE and isinstance(value, str):
            return self._opaque(value.encode("utf-8", "backslashreplace"))
        if codec.is_exactly(value, dict):
            return "{" + self._fields(value) + "}"
        if codec.is_exactly(value, list):
            return "[" + self._values(value) + "]"
        return _word(value)

    def _opaque(self, value: bytes) -> str:
        if not self._preview:
            return f"<{len(value)} bytes>"
        more = "..." if len(value) > PREVIEW_BYTES else ""
        return f"<{len(value)} bytes {_word(value[:PREVIEW_BYTES].decode('latin-1'))}{more}>"


def _line(size: int, said: str) -> str:
    return f"{size:>7} bytes  {said}".rstrip()


def _named(kind: Any, fields: list[Any]) -> dict[str, Any]:
    """Fields by name, without those at their default; unknown ones under their position."""
    names: tuple[str, ...] = kind._fields
    defaults: dict[str, Any] = kind._field_defaults
    pairs = zip(names, fields, strict=False)
    named = {name: value for name, value in pairs if name not in defaults or value != defaults[name]}
    extra = {f"field_{i}": value for i, value in enumerate(fields) if i >= len(names)}
    return named | extra


def _name(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _word(name)


def _word(value: object) -> str:
    """Any plain value as ASCII without control characters, cut where it gets long."""
    said = json.dumps(value, default=repr)
    return said if len(said) <= _SHOWN_CHARACTERS else f"{said[:_SHOWN_CHARACTERS]}..."
