"""When things happen in a simulated run: in storms, with lulls between them in which little does.

What goes wrong goes wrong where things come together, so a long run with events spread evenly would find
less than a short one. In a lull there is still a fault now and then, and time for what takes long:
expiries, backoff, retention.
"""

from typing import NamedTuple

from .heap import Heap

LULL_FACTOR = 150
"""So many times rarer is in a lull what happens in a storm."""


class Weather(NamedTuple):
    """How long a storm is, and about how long a lull; without lulls it storms all the time."""

    storm_ms: int
    lull_ms: int


ALWAYS = Weather(0, 0)


class Forecast:
    """The weather of one run."""

    def __init__(self, heap: Heap, weather: Weather) -> None:
        self._heap = heap
        self._storm_ms, self._lull_ms = weather
        self._begins_ms, self._ends_ms = 0, self._storm_ms

    def pause_ms(self, mean_ms: int) -> int:
        """How long somebody waits who acts every `mean_ms` in a storm."""
        pause_ms = self._heap.between(0, 2 * mean_ms)
        if not self._lull_ms:
            return pause_ms
        now_ms = self._heap.now_ms
        while self._ends_ms <= now_ms:
            self._begins_ms = self._ends_ms + self._heap.between(self._lull_ms // 2, self._lull_ms * 3 // 2)
            self._ends_ms = self._begins_ms + self._storm_ms
        if self._begins_ms <= now_ms:
            return pause_ms
        return min(pause_ms * LULL_FACTOR, self._begins_ms - now_ms + pause_ms)
