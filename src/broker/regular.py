"""Opening a file to read it only if it is one: a FIFO blocks whoever opens it, and a device may act on it.

What lies under a name is judged before it is opened, and judged again afterwards, because somebody may
have swapped it in between; an open that meets the swap does not wait and follows no link.
"""

import os
import stat

from .refusals import FileForeignError

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: str) -> int:
    """A descriptor for reading. FileForeignError if it is something else, or the OSError of opening."""
    check_regular(path, os.lstat(path).st_mode)
    fd = os.open(path, _FLAGS)
    try:
        check_regular(path, os.fstat(fd).st_mode)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_regular(path: str, mode: int) -> None:
    """FileForeignError if something of that mode is no regular file."""
    if not stat.S_ISREG(mode):
        raise FileForeignError(path, f"is {kind_of_file(mode)}, not a file; move it away")


def kind_of_file(mode: int) -> str:
    """What something is that should have been a file, with its article."""
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for test, name in kinds if test(mode)), "something else")
