"""A heap of instants with lazy deletion, for waits that are many and far away.

An entry is `(instant, number)`. Whoever pops one asks whether it still holds (the job may have
moved on); stale entries cost nothing until their time, and are swept out when they become the
majority, so the heap stays proportional to what it stands for.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

SWEEP_SLACK = 1024


class Timers:
    """Instants of jobs by number. `holds(instant, number)` tells a valid entry from a stale one."""

    __slots__ = ("_heap", "_holds")

    def __init__(self, holds: Callable[[int, int], bool]) -> None:
        self._heap: list[tuple[int, int]] = []
        self._holds = holds

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, instant: int, number: int) -> None:
        """Add an entry. An older one of the same job becomes stale by itself."""
        heappush(self._heap, (instant, number))

    def next_instant(self) -> int | None:
        """The earliest valid instant."""
        heap = self._heap
        while heap and not self._holds(*heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: int) -> int | None:
        """The job number of the earliest valid entry that is due, removed; or None."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            instant, number = heappop(heap)
            if self._holds(instant, number):
                return number
        return None

    def sweep(self, valid_max: int) -> None:
        """Drop stale entries if they outnumber `valid_max`, the most that can be valid."""
        if len(self._heap) > 2 * valid_max + SWEEP_SLACK:
            # A set, because a job that left its state and came back has two entries that look alike,
            # both of which hold.
            self._heap = list({entry for entry in self._heap if self._holds(*entry)})
            heapify(self._heap)
