"""Who descends from whom, by what the kernel says of processes.

A pid may be another's by the time it is used: signals go by a pidfd, after a second look.
"""

import os
from pathlib import Path


def parent_of(pid: int) -> int:
    """The parent's pid; 0 if there is no such process, or it has ended."""
    fields = _fields(pid)
    return int(fields[1]) if fields and fields[0] not in "ZX" else 0


def name_of(pid: int) -> str:
    """Its short name, empty if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def lineage(pid: int, last: str) -> list[int]:
    """The process, its parent, and so on, up to the one of that name."""
    found: list[int] = []
    while pid > 1:
        found.append(pid)
        if name_of(pid) == last:
            break
        pid = parent_of(pid)
    return found


def children_of(pid: int, name: str) -> list[int]:
    """Its living children of that short name."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [child for child in map(int, text.split()) if name_of(child) == name and parent_of(child) == pid]


def pidfd_of_child(pid: int, parent: int) -> int | None:
    """A handle of a process that certainly is that child; None if it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if parent_of(pid) == parent:
        return pidfd
    os.close(pidfd)
    return None


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # The name may hold spaces and parentheses: only the last one ends it.
    return text[text.rindex(")") + 2 :].split()
