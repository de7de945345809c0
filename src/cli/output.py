"""What commands print: data to stdout, talk to stderr, maps as JSON, rows as aligned columns.

Columns are escaped here and JSON is pure ASCII; whoever puts another line escapes what is foreign in
it. A reader that went away
(`stoker jobs | head`) is OutputClosed, which ends the command quietly.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

from .escape import escape

_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


class OutputClosed(Exception):
    """Nobody reads stdout any more; the command ends with this exit code."""

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__()
        self.exit_code = exit_code


def put(text: str) -> None:
    """A line of data."""
    if sys.stdout is None:
        raise OutputClosed
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise OutputClosed from None


def put_lines(lines: Iterable[str]) -> None:
    """Lines of data."""
    for line in lines:
        put(line)


def flush() -> None:
    """Everything that was put is out, or OutputClosed, or the OSError that kept it from being."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def say(text: str) -> None:
    """A line of talk. That nobody listens is no reason to fail."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except OSError:
            return


def json_text(value: Any) -> str:
    """One line of ASCII. Bytes become text if they are readable, else `{"base64": ...}`; a datetime is
    `{"$datetime": ...}`, as it is enqueued.

    NaN and infinities, which a handler may return and JSON has no word for, become text.
    """
    import json

    try:
        text = json.dumps(value, default=_spell, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), default=_spell, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def counted(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[str] = frozenset()
) -> list[str]:
    """Aligned columns under their heads, every cell escaped; those in `right` are aligned to the right."""
    safe = [[escape(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*safe, strict=True)]
    lines: list[str] = []
    for row in safe:
        cells = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def fields(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names and escaped values in two columns; an empty value leaves its line out."""
    kept = [(escape(name), escape(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in kept]


def _finite(value: object) -> object:
    """A copy of it, with text in place of the floats that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[object]", value)]
    return value


def _spell(value: object) -> Any:
    if not isinstance(value, bytes):
        return _spell_other(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\n\t" for char in text):
        return text
    import binascii

    return {"base64": binascii.b2a_base64(value, newline=False).decode()}


def _spell_other(value: object) -> Any:
    from ..client.instants import is_instant, to_map

    return to_map(cast(Any, value)) if is_instant(value) else str(value)
