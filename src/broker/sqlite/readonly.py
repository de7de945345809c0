"""A journal opened to be looked at: no byte of it or beside it is written, and no lock is taken.

For a file that no broker has open, or a copy. SQLite believes that it has the file to itself, and is
refused whatever would change something; a log that the last run left is read as it lies there. The
usual ways are no good: a read-only connection makes or asks for a shared-memory file, and one that is
told the file is immutable leaves the log out, without which a journal may not even be consistent.

Nor is SQLite's own way of opening a file: it would wait for ever at a FIFO, and as root it gives the
log it opens to the owner of the journal. So files are opened and read here.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apsw

from ..refusals import FileForeignError
from ..regular import open_regular
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
    """What SQLite sees of the directory: the files that are there, and none that could be written."""

    def __init__(self) -> None:
        self.name = f"read-only-{next(_names)}"
        super().__init__(self.name, "")
        self._errno = 0

    def xOpen(self, name: Any, flags: list[int]) -> Any:
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        flags[1] = flags[0]
        try:
            return _File(open_regular(filename), self.failed)
        except FileNotFoundError as error:
            if flags[0] & apsw.SQLITE_OPEN_WAL:
                return _NoLog()
            raise self.failed(apsw.CantOpenError(str(error)), errno.ENOENT) from error
        except FileForeignError as error:
            raise self.failed(apsw.CantOpenError(str(error)), errno.EINVAL) from error
        except OSError as error:
            raise self.failed(apsw.CantOpenError(str(error)), error.errno or 0) from error

    def failed(self, error: apsw.Error, number: int) -> apsw.Error:
        """The error to raise; SQLite asks for its number afterwards."""
        self._errno = number
        return error

    def xGetLastError(self) -> tuple[int, str]:
        return self._errno, os.strerror(self._errno)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        raise apsw.ReadOnlyError(f"{filename} is not to be deleted")


class _Unchanging:
    """A file as SQLite wants it, without the half that writes and without locks."""

    def xWrite(self, data: Any, offset: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be written")

    def xTruncate(self, newsize: int) -> None:
        raise apsw.ReadOnlyError("nothing is to be cut")

    def xSync(self, flags: int) -> None:
        """Nothing was written."""

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


class _File(_Unchanging):
    """A file that is there."""

    def __init__(self, fd: int, failed: Any) -> None:
        self._fd = fd
        self._failed = failed

    def xRead(self, amount: int, offset: int) -> bytes:
        try:
            return os.pread(self._fd, amount, offset)
        except OSError as error:
            failure: Any = apsw.IOError(str(error))
            failure.extendedresult = apsw.SQLITE_IOERR_READ
            raise self._failed(failure, error.errno or 0) from error

    def xFileSize(self) -> int:
        return os.fstat(self._fd).st_size

    def xClose(self) -> None:
        os.close(self._fd)


class _NoLog(_Unchanging):
    """The log where there is none: SQLite would make an empty one."""

    def xRead(self, amount: int, offset: int) -> bytes:
        return b""

    def xFileSize(self) -> int:
        return 0

    def xClose(self) -> None:
        """There is nothing to close."""
