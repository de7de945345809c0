"""Patience: how long, and in which steps, a client tries again after it lost its broker."""

from time import monotonic, sleep

PAUSE_S_FIRST = 0.02
"""A broker that was only restarted is back within a few of these."""

PAUSE_S_MAX = 0.5
"""A thousand waiting clients then ask at most 2,000 times a second, which costs a broker nothing."""


class Patience:
    """Counts from the first `pause`, not from when it was made: a long wait does not use it up."""

    __slots__ = ("_end", "_pause_s", "_retry_s")

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._end: float | None = None
        self._pause_s = PAUSE_S_FIRST

    def pause(self) -> bool:
        """Sleep a little and say True, or say False at once if the time is used up."""
        now = monotonic()
        if self._end is None:
            self._end = now + self._retry_s
        remaining = self._end - now
        if remaining <= 0:
            return False
        sleep(min(self._pause_s, remaining))
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
        return True
