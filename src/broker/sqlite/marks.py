"""Whether the journal's files still hold what this broker has put there: a few places of them, read again.

A file that somebody cuts short, or writes over in place as `cp` does, keeps its name and inode, and SQLite goes
on: what it appends makes the file long again, with a hole in it, and a checkpoint looks at no checksum. But a
log is only appended to until the next one begins, and the database is only written by checkpoints, which are made
here. So each look compares, and remembers anew for the next one:

- of the database its first page, its last one, and the one of `meta`, which differs after each start and each
  new log: no older copy and no snapshot has all three;
- of the log its header, its end, and the last frame that there was at the last look.

Nothing else is compared. What somebody writes between these places is found by the checksum of the row, when
that is read.

The reads go through the connection's own file: opening another would give up SQLite's lock on it. One that fails
proves nothing and is passed over.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import apsw

from ..whereabouts import GONE, JournalLostError
from . import schema
from .database import Database
from .log import FRAME_HEADER_BYTES, HEADER_BYTES, log_bytes

_FILE, _LOG = 0, 1
"""What `Connection.read` calls the two."""


class _Mark(NamedTuple):
    offset: int
    content: bytes


class Marks:
    """The database and the log of a connection that is their only user."""

    def __init__(self, database: Database, path: str, page_bytes: int) -> None:
        self._database = database
        self._path = path
        self._page_bytes = page_bytes
        self._meta_page = database.number(schema.META_PAGE)
        self._of_file: list[_Mark] = []
        self._of_log: list[_Mark] = []
        self.take_file()

    def take_file(self) -> None:
        """A checkpoint was made, or was tried: this is what the database is now."""
        try:
            pages = os.stat(self._path).st_size // self._page_bytes
        except OSError:
            pages = 0
        places = ((page - 1) * self._page_bytes for page in {1, self._meta_page, pages} if page)
        self._of_file = [*self._taken(_FILE, *((offset, self._page_bytes) for offset in places))]

    def begin_log(self) -> None:
        """The next commit may begin a new log in the place of this one."""
        self._of_log = []

    def check(self, log_pages: int) -> None:
        """JournalLostError if something else is there. `log_pages` were committed to this log; 0 if unknown."""
        self._check_all(_FILE, self._path, self._of_file)
        self._check_all(_LOG, f"{self._path}-wal", self._of_log)
        if not log_pages:
            return
        if self._read(_LOG, log_bytes(log_pages, self._page_bytes) - 1, 1) is None:
            raise _lost(f"{self._path}-wal")
        frame = log_bytes(log_pages - 1, self._page_bytes), FRAME_HEADER_BYTES + self._page_bytes
        self._of_log = [*self._taken(_LOG, (0, HEADER_BYTES), frame)]

    def _check_all(self, which: int, path: str, marks: list[_Mark]) -> None:
        for mark in marks:
            found = self._read(which, mark.offset, len(mark.content))
            if found != mark.content and found != b"":
                raise _lost(path)

    def _taken(self, which: int, *places: tuple[int, int]) -> Iterator[_Mark]:
        for offset, size in places:
            content = self._read(which, offset, size)
            if content:
                yield _Mark(offset, content)

    def _read(self, which: int, offset: int, size: int) -> bytes | None:
        """None if the file ends before; empty if it cannot be read."""
        try:
            is_whole, content = self._database.connection.read("main", which, offset, size)
        except apsw.Error:
            return b""
        return content if is_whole else None


def _lost(path: str) -> JournalLostError:
    says = "was cut short or written over under the broker that wrote to it; restore a snapshot"
    return JournalLostError(path, says, [(os.path.basename(path), GONE)])
