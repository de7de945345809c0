"""Patience: how long, and in which steps, a client tries again after it lost its broker.

Only reckons. Who asks sleeps in its own way, a thread or a task.
"""

from time import monotonic

PAUSE_S_FIRST = 0.02
"""A broker that was only restarted is back within a few of these."""

PAUSE_S_MAX = 0.5
"""A thousand waiting clients then ask at most 2,000 times a second, which costs a broker nothing."""


class Patience:
    """Counts from the first pause, not from when it was made: a long wait does not use it up."""

    __slots__ = ("_end", "_pause_s", "_retry_s")

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._end: float | None = None
        self._pause_s = PAUSE_S_FIRST

    def next_pause(self) -> float | None:
        """Seconds to sleep before the next try, or None if the time is used up."""
        now = monotonic()
        if self._end is None:
            self._end = now + self._retry_s
        remaining = self._end - now
        if remaining <= 0:
            return None
        pause_s = min(self._pause_s, remaining)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        return pause_s
