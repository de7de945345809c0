"""Once a minute: how each queue stands, for the log. Only queues that are not at rest have anything to say.

All but one of the figures are state. `retries` is the one that is counted as it happens: attempts that ended
by a failure (error, timeout, memory, crash, lost) after which their job is to run again. What ends without a
fault (released, shutdown) is none, nor is the failure that made a job dead: that one shows in `dead`. It is
kept by name, and only where something failed, so a queue that is forgotten meanwhile costs nothing.

However many queues there are, so many rows are made at most: first those whose oldest ready job has waited
longest. The others are one row, the sum.
"""

from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

from ...proto import limits
from ...proto.model import State
from .memory import Memory
from .queues import Queue


class Figures(NamedTuple):
    """Of one queue, or of several: counts by state are of now, `retries` are those since the last time."""

    queue: str
    ready: int
    leased: int
    scheduled: int
    done: int
    dead: int
    oldest_ready_ms: int
    retries: int


class Minute(NamedTuple):
    """`rows` by name of the queue; `rest` sums up the `left_out` others."""

    rows: list[Figures]
    left_out: int
    rest: Figures


def take(memory: Memory, boot_ms: int, rows_max: int = limits.FIGURES_MAX) -> Minute:
    """The figures of now; retries are counted anew from here."""
    retries, memory.retries = memory.retries, {}
    busy = (queue for queue in memory.queues.values() if not queue.is_at_rest)
    found = [_of(queue, boot_ms, retries.get(queue.name, 0)) for queue in busy]
    rows = nlargest(rows_max, found, key=_urgency)
    left_out = len(found) - len(rows)
    named = {row.queue for row in rows}
    rest = _sum(row for row in found if row.queue not in named) if left_out else _sum(())
    return Minute(sorted(rows), left_out, rest)


def _of(queue: Queue, boot_ms: int, retries: int) -> Figures:
    oldest, counts = queue.oldest_ready(), queue.counts
    return Figures(
        queue.name,
        counts[State.READY],
        counts[State.LEASED],
        counts[State.SCHEDULED],
        counts[State.DONE],
        counts[State.DEAD],
        boot_ms - oldest[1] if oldest is not None else 0,
        retries,
    )


def _urgency(row: Figures) -> tuple[int, int, int]:
    return row.oldest_ready_ms, row.ready + row.leased, row.retries


def _sum(rows: Iterable[Figures]) -> Figures:
    ready = leased = scheduled = done = dead = oldest_ready_ms = retries = 0
    for row in rows:
        ready += row.ready
        leased += row.leased
        scheduled += row.scheduled
        done += row.done
        dead += row.dead
        oldest_ready_ms = max(oldest_ready_ms, row.oldest_ready_ms)
        retries += row.retries
    return Figures("", ready, leased, scheduled, done, dead, oldest_ready_ms, retries)
