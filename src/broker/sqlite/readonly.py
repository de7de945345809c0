"""A journal opened to be looked at: no byte of it or beside it is written, and no lock is taken.

For a file that no broker has open, or a copy. SQLite believes that it has the file to itself, and is
refused whatever would change something; a log that the last run left is read as it lies there. The
usual ways are no good: a read-only connection makes or asks for a shared-memory file, and one that is
told the file is immutable leaves the log out, without which a journal may not even be consistent.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apsw

from .database import Database

_SECTOR_BYTES = 4096

_names = count(1)


@contextmanager
def read_only(path: str) -> Generator[Database]:
    """A connection that can only read. What it may meet are apsw's errors."""
    layer = _Layer()
    try:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        database = Database(real, flags, layer.name)
        try:
            database.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            # Exclusive, because then the index of the log is kept in memory.
            for setting in ("locking_mode = EXCLUSIVE", "temp_store = MEMORY", "cell_size_check = ON"):
                database.run(f"PRAGMA {setting}")
            yield database
        finally:
            database.close()
    finally:
        layer.unregister()


class _Layer(apsw.VFS):
    """SQLite's own file access, without the half of it that writes."""

    def __init__(self) -> None:
        self.name = f"read-only-{next(_names)}"
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if flags[0] & apsw.SQLITE_OPEN_WAL and not os.path.lexists(filename):
            flags[1] = flags[0]
            return _Nothing()
        return _File(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        raise apsw.ReadOnlyError(f"{filename} is not to be deleted")


class _File(apsw.VFSFile):
    """A file opened for reading, which says of itself what was asked for."""

    def __init__(self, name: Any, flags: list[int]) -> None:
        asked = flags[0]
        writing = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        super().__init__("", name, [asked & ~writing | apsw.SQLITE_OPEN_READONLY, 0])
        flags[1] = asked

    def xLock(self, level: int) -> None:
        """Nobody else has the file open."""

    def xUnlock(self, level: int) -> None:
        """As above."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xWrite(self, data: Any, offset: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be written")

    def xTruncate(self, newsize: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be cut")

    def xSync(self, flags: int) -> None:
        """Nothing was written."""


class _Nothing:
    """The log where there is none: SQLite would make an empty one."""

    def xRead(self, amount: int, offset: int) -> bytes:
        return b""

    def xWrite(self, data: Any, offset: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be written")

    def xTruncate(self, newsize: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be cut")

    def xSync(self, flags: int) -> None:
        """Nothing was written."""

    def xFileSize(self) -> int:
        return 0

    def xLock(self, level: int) -> None:
        """Nobody else has the file open."""

    def xUnlock(self, level: int) -> None:
        """As above."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return _SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xClose(self) -> None:
        """There is nothing to close."""
