"""A look at the log of the last run, for damage that SQLite would pass over in silence.

SQLite ends its reading of a log at the first frame whose checksum is wrong: what follows it is taken
for the rest of a write that a power cut tore. One such write there may be, because each commit is
synced before the next begins; so if two or more commits of the same log lie behind the first bad
frame, they were once safe on disk, and going on would lose them without a word. This holds for
`synchronous=FULL` only.

The frames themselves are not checked again here: SQLite says how many it took, and the headers of
the others say what they were.

The same file is written over with what it holds before anything is made of it (`write_anew`). After a
sync that failed the kernel may have thrown away what it was to write, and still show it to whoever
reads: a checkpoint would then fold commits into the database that the log does not have on disk, and a
power cut in the middle of it would leave pages of two times, with no log to make them one again.

    log:    header (32 bytes), then frames
    header: magic, version, page size, checkpoint number, salt (8 bytes), checksum (8 bytes)
    frame:  page number, pages in the database if this ends a commit else 0, salt, checksum, page
"""

import struct
from collections.abc import Sequence
from typing import Any

import apsw
import attrs

from ...proto import limits
from ..regular import open_regular

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

_COPY_BYTES = 64 * limits.KIB
"""SQLite's own file access takes only the low 17 bits of a length: of a larger write it makes a smaller one,
and of one of exactly 1 MiB none, which it calls a full disk."""

_LITTLE_ENDIAN_MAGIC = 0x377F0682
_BIG_ENDIAN_MAGIC = 0x377F0683


@attrs.frozen
class Log:
    """What the headers in a log say."""

    page_bytes: int
    commits: Sequence[int]
    """The frames that end a commit, counted from 1, of those that belong to this log."""

    def commits_after(self, frame: int) -> int:
        return sum(1 for commit in self.commits if commit > frame)

    def bytes_up_to(self, frame: int) -> int:
        return log_bytes(frame, self.page_bytes)


def log_bytes(frames: int, page_bytes: int) -> int:
    """How long a log with so many frames is."""
    return HEADER_BYTES + frames * (FRAME_HEADER_BYTES + page_bytes)


def read_log(path: str, page_bytes: int) -> Log | None:
    """The log of a database with pages of that size; None if there is none to speak of."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if len(data) < HEADER_BYTES:
        return None
    is_sound = _is_sound(data[:HEADER_BYTES])
    # A damaged header tells nothing of its salt; the first frame's is the log's then.
    salt = data[16:24] if is_sound else data[HEADER_BYTES + 8 : HEADER_BYTES + 16]
    step = FRAME_HEADER_BYTES + page_bytes
    offsets = range(HEADER_BYTES, len(data) - step + 1, step)
    commits = [
        number
        for number, offset in enumerate(offsets, 1)
        if data[offset + 4 : offset + 8] != b"\0\0\0\0" and _is_nearly(data[offset + 8 : offset + 16], salt)
    ]
    return Log(page_bytes, commits)


def _is_nearly(salt: bytes, wanted: bytes) -> bool:
    """Whether a frame belongs to this log: a flipped bit in its salt must not hide that it does.

    Half of a salt is random, so those of other logs are not nearly the same.
    """
    return salt == wanted or (int.from_bytes(salt) ^ int.from_bytes(wanted)).bit_count() == 1


def write_anew(path: str, size_bytes: int, vfs: str) -> None:
    """Write so much of a log over itself and sync it: then all of that is on disk, whatever was before.

    Through SQLite's own file access, as everything that is written to the journal. The bytes stay what they
    are, so it is no matter where a power cut interrupts this.
    """
    flags = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE
    # The stubs of apsw name a buffer type that Python 3.11 does not have.
    file: Any = apsw.VFSFile(vfs, path, [flags, 0])
    try:
        for offset in range(0, size_bytes, _COPY_BYTES):
            file.xWrite(file.xRead(min(_COPY_BYTES, size_bytes - offset), offset), offset)
        file.xSync(apsw.SQLITE_SYNC_NORMAL)
    finally:
        file.xClose()


def _is_sound(header: bytes) -> bool:
    """Whether the header's own checksum is right."""
    magic = int.from_bytes(header[:4], "big")
    if magic not in (_LITTLE_ENDIAN_MAGIC, _BIG_ENDIAN_MAGIC):
        return False
    order = ">" if magic == _BIG_ENDIAN_MAGIC else "<"
    first = second = 0
    for left, right in struct.iter_unpack(f"{order}II", header[:24]):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">II", header[24:32])
