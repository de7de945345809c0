"""A disk that remembers: everything SQLite asked of it, in order, so that a power cut can be made later.

The files are real ones; beside each call the tape notes what it was. What a power cut at any moment may
leave of it is worked out from the tape alone (`power_cut.py`). `swallows_syncs` is a disk that lies
about the log: it says that what it was asked to make durable is durable, and never makes it so.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import apsw


class Wrote(NamedTuple):
    """Bytes of a file were replaced."""

    file: str
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file was given a size."""

    file: str
    size: int


class Synced(NamedTuple):
    """All that a file holds is durable, and so is its name."""

    file: str


class Lost(NamedTuple):
    """A sync failed: what was written since the last one can be read still, and will be on no disk."""

    file: str


class Deleted(NamedTuple):
    """The name of a file is gone; `synced`: durably."""

    file: str
    synced: bool


class Renamed(NamedTuple):
    """A file that was built under another name has its own now, durably."""

    old: str
    new: str


class Replaced(NamedTuple):
    """The power was cut here, and these are the files that the next start of the host found."""

    files: Mapping[str, bytes]


Operation = Wrote | Cut | Synced | Lost | Deleted | Renamed | Replaced

_names = count(1)


class Tape(apsw.VFS):
    """A file system by itself: pass `name` as the journal's `vfs`."""

    def __init__(self, *, swallows_syncs: bool = False) -> None:
        self.name = f"tape-{next(_names)}"
        super().__init__(self.name, "")
        self.operations: list[Operation] = []
        self._swallows_syncs = swallows_syncs
        self._syncs_left = 0
        self.failed_at = 0
        """The length of the tape when a sync had failed as told; 0 before that."""
        self._new: set[str] = set()

    def fail_sync(self, nth: int) -> None:
        """Let the nth sync from now fail."""
        self._syncs_left = nth

    def xOpen(self, name: Any, flags: list[int]) -> "TapedFile":
        file = TapedFile(self, name, flags)
        self._opened(file.name)
        return file

    def _opened(self, name: str) -> None:
        """A journal is built as `.new` and renamed when it is whole, which SQLite does not see."""
        if name.endswith(".new"):
            self._new.add(name)
        elif f"{name}.new" in self._new:
            self._new.remove(f"{name}.new")
            self.operations.append(Renamed(f"{name}.new", name))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.operations.append(Deleted(os.path.basename(filename), syncdir))

    def sync(self, name: str) -> None:
        """A file is to be synced."""
        self._syncs_left -= 1
        if self._syncs_left == 0:
            self.operations.append(Lost(name))
            self.failed_at = len(self.operations)
            error: Any = apsw.IOError("the sync fails as told")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC
            raise error
        if not (self._swallows_syncs and name.endswith("-wal")):
            self.operations.append(Synced(name))


class TapedFile(apsw.VFSFile):
    def __init__(self, tape: Tape, name: Any, flags: list[int]) -> None:
        self._tape = tape
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self.name = os.path.basename(path)
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        # The stubs of apsw name a buffer type that Python 3.11 does not have.
        above: Any = super()
        above.xWrite(data, offset)
        self._tape.operations.append(Wrote(self.name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._tape.operations.append(Cut(self.name, newsize))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._tape.sync(self.name)


@contextmanager
def taped(*, swallows_syncs: bool = False) -> Generator[Tape]:
    """A tape for one run."""
    tape = Tape(swallows_syncs=swallows_syncs)
    try:
        yield tape
    finally:
        tape.unregister()
