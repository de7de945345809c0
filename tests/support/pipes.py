"""The pipe that a process writes to, seen from outside."""

import array
import fcntl
import os
import termios
from typing import NamedTuple


class Pipe(NamedTuple):
    """What waits in it, and what it takes."""

    bytes: int
    bytes_max: int


def pipe_of(pid: int, fd: int) -> Pipe:
    """Of a descriptor of a process. OSError if it has no such thing."""
    reader = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        waiting = array.array("i", [0])
        fcntl.ioctl(reader, termios.FIONREAD, waiting)
        return Pipe(waiting[0], fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ))
    finally:
        os.close(reader)


def is_blocked_in_write(pid: int, fd: int) -> bool:
    """It sleeps, and its pipe is full."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        text = file.read()
    pipe = pipe_of(pid, fd)
    return text[text.rindex(")") + 2] == "S" and pipe.bytes == pipe.bytes_max
