"""Exit codes, the same for every command and daemon; `docs/` prints this list.

Commands use small numbers of their own. Daemons use those of `sysexits.h`, because service managers
know them: a unit can say `RestartPreventExitStatus=65 73 78` and be right.
"""

from enum import IntEnum


class Exit(IntEnum):
    """Why a process ended."""

    OK = 0
    FAILURE = 1
    """Anything without a code of its own, a fault of stoker included."""
    USAGE = 2
    """The command line was wrong."""
    NOT_FOUND = 3
    """No such job."""
    REFUSED = 4
    """The broker understood and said no."""
    UNREACHABLE = 5
    """No broker is listening; nothing was sent."""
    TIMED_OUT = 6
    """No answer in the time given, to a request that changes nothing."""
    UNKNOWN_OUTCOME = 7
    """The connection ended before the answer: it may or may not have happened."""
    JOB_FAILED = 8
    """The job that was waited for ended without success."""
    DOUBTFUL = 9
    """`stoker doctor` found something that should be looked at."""
    UNFIT = 10
    """`stoker doctor` found that a broker would not start or takes no jobs, or something damaged."""

    DATA_REFUSED = 65
    """Wrong, corrupt, newer or foreign file. A restart cannot help."""
    UNAVAILABLE = 69
    """A pool whose app does not import, or of which no worker ever became ready."""
    OWNED = 71
    """Another broker holds the state directory."""
    CANNOT_CREATE = 73
    """Socket or directory cannot be made, or is not safe."""
    STORAGE = 74
    """A storage error. Memory was ahead of the disk, so a restart is right."""
    CONFIG = 78
    """A setting is wrong, the limit of open files included."""


NEVER_RESTART = frozenset(
    {Exit.USAGE, Exit.REFUSED, Exit.DATA_REFUSED, Exit.OWNED, Exit.CANNOT_CREATE, Exit.CONFIG}
)
"""Ends that a restart would only repeat. A held lock does not come free by asking again and again, and a
pool that the broker refused says the same the next time."""

SIGNALLED = 128
"""As shells report a program that a signal ended: this, and the number of the signal."""

INTERRUPTED = SIGNALLED + 2
"""Ctrl-C ended the command."""
