"""Whether a process has a journal open, asked of the kernel without touching anybody's lock.

Never to be called by a broker: closing the file gives up all locks that this very process has on it.
"""

import fcntl
import os
import struct

from ..regular import open_regular

_PENDING_BYTE = 0x40000000
"""Where SQLite's locks on a file begin."""

_LOCKS_BYTES = 512
_FLOCK = "@hhqqi0q"
"""`struct flock`: type, whence, start, length, pid."""


def holder(path: str) -> int | None:
    """The pid of the process that holds a lock on the journal, 0 if it is in another PID namespace.

    None if nobody does; FileForeignError if it is no file. A broker holds one from its start to its end.
    """
    fd = open_regular(path)
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _PENDING_BYTE, _LOCKS_BYTES, 0)
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else max(pid, 0)
