"""What commands print: data to stdout, talk to stderr, maps as JSON, rows as aligned columns.

Callers escape what is foreign; JSON is pure ASCII, so it needs no more. A reader that went away
(`stoker jobs | head`) is OutputClosed, which ends the command quietly.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any


class OutputClosed(Exception):
    """Nobody reads stdout any more."""


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
    """One line of ASCII. Bytes become text if they are readable, else `{"base64": ...}`."""
    import json

    return json.dumps(value, default=_spell).replace("\x7f", "\\u007f")


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[str] = frozenset()
) -> list[str]:
    """Aligned columns under their heads; those in `right` are aligned to the right."""
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    lines: list[str] = []
    for row in [heads, *rows]:
        cells = [
            cell.rjust(width) if head in right else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def fields(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names and values in two columns; an empty value leaves its line out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in kept]


def _spell(value: object) -> Any:
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\n\t" for char in text):
        return text
    import binascii

    return {"base64": binascii.b2a_base64(value, newline=False).decode()}
