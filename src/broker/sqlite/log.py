"""A look at the log of the last run, for damage that SQLite would pass over in silence.

SQLite ends its reading of a log at the first frame whose checksum is wrong: what follows it is taken
for the rest of a write that a power cut tore. One such write there may be, because each commit is
synced before the next begins; so if two or more commits of the same log lie behind the first bad
frame, they were once safe on disk, and going on would lose them without a word. This holds for
`synchronous=FULL` only.

The frames themselves are not checked again here: SQLite says how many it took, and the headers of
the others say what they were.

    log:    header (32 bytes), then frames
    header: magic, version, page size, checkpoint number, salt (8 bytes), checksum (8 bytes)
    frame:  page number, pages in the database if this ends a commit else 0, salt, checksum, page
"""

import struct
from collections.abc import Sequence

import attrs

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24

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
        return HEADER_BYTES + frame * (FRAME_HEADER_BYTES + self.page_bytes)


def read_log(path: str, page_bytes: int) -> Log | None:
    """The log of a database with pages of that size; None if there is none to speak of."""
    try:
        with open(path, "rb") as file:
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
        if data[offset + 8 : offset + 16] == salt and data[offset + 4 : offset + 8] != b"\0\0\0\0"
    ]
    return Log(page_bytes, commits)


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
