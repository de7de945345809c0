"""A control group for what a sentinel starts: the kernel kills all in it at once, however quickly it forks.

Where groups can be made (cgroup v2, which a service gets by `Delegate=yes`, and root in many a container) each
sentinel has a leaf, made once, below the trunk, which is the group that the nursery is in. The sentinel lives in its
leaf, so what it starts is born there, and a start costs nothing for it. To kill, it steps out first:

    in the leaf     sentinel, and all of its program that has not left for another group, which takes rights to do
    in the trunk    nursery; a sentinel from the moment when it kills until it starts its next program

Sentinel and nursery hold a lock on a leaf together, as long as one of them lives. A leaf without a lock is what is left
of a pool that was killed whole: the next nursery that starts in the same trunk kills what is in it.

That nothing is left is never concluded from here: who has left the leaf, or never was in one, is found by parentage,
and the kernel's word is about children. Nothing here raises: without leaves all is as where there can be none.
"""

import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from ...proto import limits

GONE_MS = 100
"""What was killed or reaped is counted for a moment more, until its processor has let go of it."""

_PREFIX = "stoker-leaf-"
_NAME = re.compile(f"{_PREFIX}[0-9a-f]{{16}}")

_PROCESSES = "cgroup.procs"
_EVENTS = "cgroup.events"
_KILL = "cgroup.kill"


class Leaf:
    """One group, which is held. Of use for one process, that is out of it at first."""

    def __init__(self, path: str, fd: int) -> None:
        """`fd`: a descriptor of it, with the lock."""
        self._path = path
        self._fd = fd
        self._is_inside = False

    def enter(self) -> bool:
        """Be in it, from now on with all that this process starts. False if that cannot be."""
        self._is_inside = self._is_inside or _move_into(self._path)
        return self._is_inside

    def kill(self) -> set[int]:
        """Kill all that is in it, and step out before; the pids of all that were found there."""
        if not self._is_left():
            return set()
        found = set(map(int, _read(self._path, _PROCESSES).split()))
        with suppress(OSError):
            _write(self._path, _KILL, b"1")
        return found

    def give_up(self) -> None:
        """Step out and remove it: it is not needed any more."""
        if self._is_left():
            self.remove()

    def _is_left(self) -> bool:
        self._is_inside = self._is_inside and not _move_into(os.path.dirname(self._path))
        return not self._is_inside

    def remove(self) -> None:
        """It, and what a program has made in it; unless somebody is there still."""
        end_s = time.monotonic() + GONE_MS / limits.SECOND_MS
        while "populated 1" in _read(self._path, _EVENTS):
            if time.monotonic() > end_s:
                return
            time.sleep(1 / limits.SECOND_MS)
        for directory, _, _ in os.walk(self._path, topdown=False):
            with suppress(OSError):
                os.rmdir(directory)

    def let_go(self) -> None:
        """Hold it no longer. A process that was forked from this one may hold it still."""
        os.close(self._fd)


class Leaves:
    """Makes them, below one trunk."""

    def __init__(self, trunk: str | None) -> None:
        """Decides whether there are any, and ends what dead sentinels have left here."""
        self._trunk = trunk
        trial = self.fresh()
        if trial is None:
            self._trunk = None
        else:
            trial.remove()
            trial.let_go()
            self._end_stale()

    def fresh(self) -> Leaf | None:
        """An empty one; None where none can be made, or none that can be killed."""
        if self._trunk is None:
            return None
        path = os.path.join(self._trunk, f"{_PREFIX}{os.urandom(8).hex()}")
        try:
            os.mkdir(path)
        except OSError:
            return None
        if os.access(os.path.join(path, _KILL), os.W_OK) and (leaf := _held(path)) is not None:
            return leaf
        with suppress(OSError):
            os.rmdir(path)
        return None

    def _end_stale(self) -> None:
        assert self._trunk is not None
        for name in filter(_NAME.fullmatch, os.listdir(self._trunk)):
            if (leaf := _held(os.path.join(self._trunk, name))) is not None:
                leaf.kill()
                leaf.remove()
                leaf.let_go()


def _held(path: str) -> Leaf | None:
    """One that nobody else holds; None if it is held, or is no more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return Leaf(path, fd)


def own_trunk() -> str | None:
    """The group that this process is in, as a directory; None if there is none, or it is not to be seen from here."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        return trunk_of(groups, Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def trunk_of(groups: str, mounts: str) -> str | None:
    """The same, from the texts that the kernel has about groups and mounts."""
    own = next((line[len("0::") :] for line in groups.splitlines() if line.startswith("0::")), None)
    if own is None or own.startswith("/.."):
        return None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            root, point = map(_plain, before.split(" ")[3:5])
            below = os.path.relpath(own, root)
            if not below.startswith(".."):
                return os.path.normpath(os.path.join(point, below))
    return None


def _plain(text: str) -> str:
    """A blank, tab, newline or backslash has its number there, in octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _read(path: str, name: str) -> str:
    try:
        return Path(path, name).read_text(encoding="ascii")
    except OSError:
        return ""


def _move_into(path: str) -> bool:
    with suppress(OSError):
        # 0 is whoever writes it.
        _write(path, _PROCESSES, b"0")
        return True
    return False


def _write(path: str, name: str, data: bytes) -> None:
    fd = os.open(os.path.join(path, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
