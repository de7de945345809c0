"""Recycling: which workers are due to be replaced by fresh ones. Pure.

A worker is due when it has finished so many jobs, has been found with so much memory of its own, or has
lived for so long. Each draws a share of the limits for itself, so that workers which started together do not
become due together; and of those that are due, one at a time is replaced, so that the pool never starts
many at once.

Nothing here is exact. A worker is looked at twice a second, and one that is due may have begun another job by
then; it finishes that. Memory is looked at more seldom, because the kernel walks all of it for that: only
when the figures that cost nothing say that it may be too much, and not twice within `MEMORY_LOOK_MS`.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..proto import limits

JITTER = 0.1
"""A worker's own limits are at most so much below those that were set."""

MEMORY_LOOK_MS = 5 * limits.SECOND_MS


class Recycling(NamedTuple):
    """From when on a worker is due; 0 for never."""

    jobs_max: int = 0
    memory_bytes_max: int = 0
    age_ms_max: int = 0


NEVER = Recycling()


class Wear:
    """What one worker has been through, against its own share of the limits."""

    def __init__(self, recycling: Recycling, born_at_ms: int, chance: float) -> None:
        """`chance` is in [0, 1)."""
        share = 1 - JITTER * chance
        self._jobs_max = max(round(recycling.jobs_max * share), 1) if recycling.jobs_max else 0
        self._memory_bytes_max = round(recycling.memory_bytes_max * share)
        self._age_ms_max = round(recycling.age_ms_max * share)
        self._born_at_ms = born_at_ms
        self._look_at_ms = born_at_ms

    def due(self, now_ms: int, finished_count: int) -> str:
        """Why it is due by its jobs or its age, for the log; empty if it is not."""
        age_ms = now_ms - self._born_at_ms
        if self._jobs_max and finished_count >= self._jobs_max:
            return f"{finished_count} jobs"
        if self._age_ms_max and age_ms >= self._age_ms_max:
            return f"{age_ms // limits.SECOND_MS} s"
        return ""

    def may_be_large(self, now_ms: int, resident_bytes: Callable[[], int]) -> bool:
        """Whether its memory is worth a closer look; `resident_bytes` is a quick figure that is never too low."""
        if not self._memory_bytes_max or now_ms < self._look_at_ms:
            return False
        if resident_bytes() < self._memory_bytes_max:
            return False
        self._look_at_ms = now_ms + MEMORY_LOOK_MS
        return True

    def due_by_memory(self, private_bytes: int) -> str:
        """The same as `due`, after the closer look."""
        is_due = private_bytes >= self._memory_bytes_max
        return f"{private_bytes // limits.MIB} MiB of its own" if is_due else ""
