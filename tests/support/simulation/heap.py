"""The event heap of the simulation: the only source of time and of chance.

Everything that happens is an action at an instant. Two actions of one instant run in the order in
which they were asked for, so a seed decides a whole run, whatever the machine does meanwhile.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from stoker.broker.core.events import Now

Action = Callable[[], None]

WALL_START_MS = 1_700_000_000_000
"""Some instant of 2023, so that a clock set back by years is still after 1970."""

BOOT_ID = "simulated-boot"


class Heap:
    """Actions by their instant, and the dice."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self._actions: list[tuple[int, int, Action]] = []
        self._asked = 0

    def after(self, delay_ms: int, action: Action) -> None:
        """Run an action so much later."""
        assert delay_ms >= 0, delay_ms
        self._asked += 1
        heappush(self._actions, (self.now_ms + delay_ms, self._asked, action))

    def run_until(self, instant_ms: int, enough: Callable[[], bool] = lambda: False) -> None:
        """Run all actions up to an instant, or until `enough`, which is asked once a second."""
        ask_ms = self.now_ms
        while self._actions and self._actions[0][0] <= instant_ms:
            at_ms, _, action = heappop(self._actions)
            self.now_ms = at_ms
            action()
            if at_ms >= ask_ms:
                if enough():
                    return
                ask_ms = at_ms + 1000
        self.now_ms = instant_ms

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.random.randint(low, high)

    def happens(self, share: float) -> bool:
        """Whether something with this probability happens now."""
        return self.random.random() < share


class HostClock:
    """The three clocks of the host. Only the wall clock can be set, and only sleep parts the others."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.slept_ms = 0
        self.wall_step_ms = self.wall_step_ms_highest = 0
        self.boot_id = BOOT_ID

    def now(self) -> Now:
        boot_ms = self._heap.now_ms + self.slept_ms
        return Now(self._heap.now_ms, boot_ms, WALL_START_MS + boot_ms + self.wall_step_ms)

    def set_wall(self, step_ms: int) -> None:
        """Somebody sets the wall clock."""
        self.wall_step_ms += step_ms
        self.wall_step_ms_highest = max(self.wall_step_ms_highest, self.wall_step_ms)
