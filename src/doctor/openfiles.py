"""Whether a broker that runs has open what the paths of its journal lead to.

Removed or replaced, its files go on living for it alone, and with its end everything in them is gone. A
broker looks for that itself and ends; one that is stopped, or older, does not. Of the journal its lock
tells, to anybody who may read the file; of the log only what the kernel lists of the process, to root.
"""

import os
from collections.abc import Iterator

from ..broker.files import JOURNAL, LOCK
from ..broker.refusals import FileForeignError
from ..broker.regular import open_regular
from ..broker.sqlite.holder import holder
from .finding import Finding, Level
from .journal import CHECK

_ADVICE = "everything stored meanwhile is in what it has open: bring the old file back before it ends"


def broker_of(data: str) -> int:
    """The pid of the broker that has the directory's lock; 0 if none has, or nobody can tell."""
    try:
        fd = open_regular(os.path.join(data, LOCK))
        try:
            pid, inode = os.pread(fd, 20, 0).strip().decode("ascii", "replace"), os.fstat(fd).st_ino
        finally:
            os.close(fd)
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            locks = [line.split() for line in file]
    except (OSError, FileForeignError):
        return 0
    # Number, FLOCK, ADVISORY, WRITE, pid, device and inode. (The device is not always that of `stat`.)
    held = any(
        "FLOCK" in lock and pid in lock and any(field.endswith(f":{inode}") for field in lock)
        for lock in locks
    )
    return int(pid) if held and pid.isdigit() else 0


def check_open_files(data: str, pid: int) -> Iterator[Finding]:
    """Nothing, if all is in its place or nobody can tell. `pid` is the broker's of that directory."""
    path = os.path.join(data, JOURNAL)
    held = _is_held(path, pid)
    open_files = _open_files(pid)
    log = f"{path}-wal"
    for each, is_open in ((path, held), (log, _is_open(log, open_files))):
        if is_open is False and _is_alive(pid):
            what = f"{each}: is not the file that the broker (pid {pid}) writes to{_where(each, open_files)}"
            yield Finding(Level.ERROR, CHECK, what, _ADVICE)


def _is_held(path: str, pid: int) -> bool | None:
    """None if nobody can tell."""
    try:
        # 0 is a broker in another PID namespace.
        return holder(path) in (pid, 0)
    except (FileNotFoundError, FileForeignError):
        return False
    except OSError:
        return None


def _open_files(pid: int) -> dict[tuple[int, int], str] | None:
    """What a process has open, by device and inode; None if that is not to be seen."""
    directory = f"/proc/{pid}/fd"
    found: dict[tuple[int, int], str] = {}
    try:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            try:
                status = os.stat(path)
                found[status.st_dev, status.st_ino] = os.readlink(path)
            except FileNotFoundError:
                continue
    except OSError:
        return None
    return found


def _is_open(path: str, open_files: dict[tuple[int, int], str] | None) -> bool | None:
    if open_files is None:
        return None
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return (status.st_dev, status.st_ino) in open_files


def _where(path: str, open_files: dict[tuple[int, int], str] | None) -> str:
    """Where the file is now, as far as the kernel says."""
    name = os.path.basename(path)
    for link in (open_files or {}).values():
        if os.path.basename(link).removesuffix(" (deleted)") == name:
            return f", which is {link}"
    return ""


def _is_alive(pid: int) -> bool:
    """A broker that ends while it is looked at has closed its files."""
    return os.path.exists(f"/proc/{pid}")
