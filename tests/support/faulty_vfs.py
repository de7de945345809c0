"""A disk that fails when told to: a layer over SQLite's own file access.

`Disk.fail(...)` arms one fault; the calls of each operation are counted from there. It also records
what was asked of it, so that a test can say "synced before" and mean it.
"""

import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import apsw

_RESULTS = {
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "read": apsw.SQLITE_IOERR_READ,
    "size": apsw.SQLITE_IOERR_FSTAT,
}
OPERATIONS = tuple(_RESULTS)

_names = count(1)


class Disk(apsw.VFS):
    """A file system by itself: pass `name` as the journal's `vfs`."""

    def __init__(self) -> None:
        self.name = f"faulty-{next(_names)}"
        super().__init__(self.name, "")
        self.calls: list[tuple[str, str]] = []
        self._failing: tuple[str, int] | None = None
        self._on = ""
        self._left = 0
        self._for_ever = False
        self._short = False
        self.failures = 0

    def fail(
        self,
        operation: str,
        nth: int = 1,
        *,
        system_errno: int = errno.EIO,
        for_ever: bool = False,
        on: str = "",
        short: bool = False,
    ) -> None:
        """Let the nth call from now fail; `for_ever`: and all after it; `on`: only those on `db` or `wal`.

        `short`: half of a write is done before it fails; of a read only half is there, which is all that
        fails about it.
        """
        self._failing = (operation, system_errno)
        self._short = short
        self._on = on
        self._left = nth
        self._for_ever = for_ever

    def heal(self) -> None:
        self._failing = None

    def called(self, operation: str, suffix: str, half: Callable[[], None] = lambda: None) -> bool:
        """Note a call, and raise if it is the one to fail; `half` does the part of it that still gets done.

        True: it is a read that gets only half of what it asked for.
        """
        self.calls.append((operation, suffix))
        if self._failing is None or self._failing[0] != operation or not suffix.startswith(self._on):
            return False
        self._left -= 1
        if self._left == 0 or (self._for_ever and self._left < 0):
            self.failures += 1
            if self._short and operation == "read":
                return True
            if self._short:
                half()
            raise self._error(operation, self._failing[1])
        return False

    def _error(self, operation: str, system_errno: int) -> apsw.Error:
        if operation == "write" and (self._short or system_errno == errno.ENOSPC):
            # As SQLite's own layer has it: these two are a full disk, whatever else may be one.
            return apsw.FullError(f"{operation} fails as told")
        error: Any = apsw.IOError(f"{operation} fails as told")
        error.extendedresult = _RESULTS[operation]
        failure: apsw.Error = error
        return failure

    def xGetLastError(self) -> tuple[int, str]:
        return (self._failing[1] if self._failing else 0), ""

    def xOpen(self, name: Any, flags: list[int]) -> "File":
        return File(self, name, flags)


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._suffix = "wal" if filename.endswith("-wal") else "db"
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        # The stubs of apsw name a buffer type that Python 3.11 does not have.
        above: Any = super()
        self._disk.called("write", self._suffix, lambda: above.xWrite(data[: len(data) // 2], offset))
        above.xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.called("sync", self._suffix)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        self._disk.called("truncate", self._suffix)
        super().xTruncate(newsize)

    def xRead(self, amount: int, offset: int) -> bytes:
        is_cut_short = self._disk.called("read", self._suffix)
        # SQLite is given zeros in place of what is missing, and told so.
        return super().xRead(amount // 2 if is_cut_short else amount, offset)

    def xFileSize(self) -> int:
        self._disk.called("size", self._suffix)
        return super().xFileSize()


@contextmanager
def faulty_disk() -> Generator[Disk]:
    """A disk for one test."""
    disk = Disk()
    try:
        yield disk
    finally:
        disk.unregister()
