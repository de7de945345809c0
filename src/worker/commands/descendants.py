"""Everything below a process, and a signal for each of it.

For a subreaper nothing can get out of that: what loses its parent becomes its child, in whatever session and
with whatever environment. So parentage alone tells who belongs to it, and a subreaper without any child has
no descendant.
"""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from ...proto import limits
from .. import process, sweep
from ..process import Stat

HUNT_MS = 20
"""A process that only forks and ends is another one every tenth of a millisecond."""


def below(root: int, stats: Iterable[Stat] | None = None, without: Collection[int] = ()) -> list[Stat]:
    """Living descendants of a process, parents before their children; itself left out.

    `without` are pids that are left out with all that is below them.
    """
    children: defaultdict[int, list[Stat]] = defaultdict(list)
    for each in process.all_stats() if stats is None else stats:
        children[each.parent].append(each)
    found, waiting = list[Stat](), [root]
    for parent in waiting:
        for each in children.pop(parent, ()):
            if each.pid not in without:
                waiting.append(each.pid)
                found.append(each)
    return [each for each in found if not each.has_ended]


def children() -> set[int]:
    """Pids of this process's children, also of those that have ended and were not reaped.

    For a process of one thread. Quick, and unlike a list of all processes it misses nobody: one whose parent
    ends is there before that parent can be reaped.
    """
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return set(map(int, file.read().split()))
    except FileNotFoundError:
        # A kernel may be built without that.
        return {each.pid for each in process.all_stats() if each.parent == own}


def kill(reap: Callable[[], object], without: Collection[int] = ()) -> set[int]:
    """Kill what is below this process, as far as it is found now; the pids of all that was.

    What forks and ends, and whose child does the same, is gone whenever a list of all processes has been read.
    But when one of them ends the next becomes a child of this process, where it is found quicker than it forks.
    `reap` is called to take in those that have ended.
    """
    found = below(os.getpid(), without=without)
    killed = set[int]()
    end_s = time.monotonic() + HUNT_MS / limits.SECOND_MS
    while True:
        for each in found:
            sweep.send(each, signal.SIGKILL)
            killed.add(each.pid)
        reap()
        left = children().difference(without)
        if not left or time.monotonic() > end_s:
            return killed
        found = [each for each in filter(None, map(process.stat, left)) if not each.has_ended]


def end(each: Stat) -> None:
    """Ask a process to end. One that is stopped is continued, or it would not hear of it."""
    sweep.send(each, signal.SIGTERM)
    sweep.send(each, signal.SIGCONT)
