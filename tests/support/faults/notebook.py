"""Notebooks: what processes of a run write down about themselves, so that it survives their SIGKILL.

A note is a word, and values of JSON; with it goes the instant by the monotonic clock, which is one for all
processes of a host, so that the notes of many can be put in order. Each is one append to a file. A process
that is killed while it writes may leave the beginning of a note behind: every note has a line of its own,
and one that is not whole is as if it had not been written. Whoever notes does so before he acts.
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from stoker.proto.codec import is_exactly

from .appending import append, size


class Note(NamedTuple):
    """One note, as it is read again."""

    at_ns: int
    word: str
    values: tuple[Any, ...]


class Notebook:
    """One file, which several processes may write to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, word: str, *values: Any, at_ns: int | None = None) -> None:
        """Write it down, as of now or of another instant. It outlives every process; nothing cuts the power."""
        instant = time.monotonic_ns() if at_ns is None else at_ns
        line = f"\n{json.dumps([instant, word, *values])}\n".encode()
        append(self.path, line)

    def size(self) -> int:
        """Bytes of it, which only grow."""
        return size(self.path)

    def notes(self) -> list[Note]:
        """All whole ones, in the order in which they were written."""
        text = self.path.read_text() if self.path.exists() else ""
        return [_note(line) for line in text.splitlines() if line.endswith("]")]


def _note(line: str) -> Note:
    at_ns, word, *values = json.loads(line)
    return Note(at_ns, word, tuple(map(_frozen, values)))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if is_exactly(value, list) else value


def merged(notebooks: Iterable[Notebook]) -> list[Note]:
    """The notes of all, in the order in which they were made."""
    return sorted((note for notebook in notebooks for note in notebook.notes()), key=lambda note: note.at_ns)
