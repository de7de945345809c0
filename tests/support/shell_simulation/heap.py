"""The event heap on Trio's virtual clock: actions of the world and rounds of the broker share one time.

Nothing moves the clock while anybody has something to do, kernel included: sockets between tasks of one
process are readable the moment they are written to. Only when all wait does it jump to the next instant
that somebody waits for. A stalled broker is the other way round: the world goes on, and Trio has no turn.
"""

from collections.abc import Callable
from heapq import heappop

import trio
import trio.testing

from ..simulation.heap import Action, Heap


class TrioHeap(Heap):
    """See the module."""

    def __init__(self, seed: int, clock: trio.testing.MockClock) -> None:
        super().__init__(seed)
        self._clock = clock
        self._sleep: trio.CancelScope | None = None
        self._is_stalled = False

    def after(self, delay_ms: int, action: Action) -> None:
        """Run an action so much later; wakes whoever waits for a later one."""
        super().after(delay_ms, action)
        if self._sleep is not None:
            self._sleep.deadline = min(self._sleep.deadline, self._actions[0][0] / 1000)

    def tell_time(self) -> None:
        """Take up the time that has passed in Trio."""
        self.now_ms = max(self.now_ms, round(trio.current_time() * 1000))

    async def run_in_trio_until(self, instant_ms: int, enough: Callable[[], bool] = lambda: False) -> None:
        """As `run_until`, with everybody else's turns in between."""
        ask_ms = self.now_ms
        while (at_ms := self._actions[0][0] if self._actions else instant_ms) <= instant_ms:
            await self._sleep_until(at_ms)
            if self._actions and self._actions[0][0] <= self.now_ms:
                heappop(self._actions)[2]()
            if self.now_ms >= ask_ms:
                if enough():
                    return
                ask_ms = self.now_ms + 1000
            if not self._actions and self.now_ms >= instant_ms:
                return
        await self._sleep_until(instant_ms)

    async def _sleep_until(self, at_ms: int) -> None:
        with trio.CancelScope(deadline=at_ms / 1000) as self._sleep:
            await trio.sleep_forever()
        self._sleep = None
        self.tell_time()

    def stall(self, stalled_ms: int) -> None:
        """The world goes on for so long, and no task has a turn."""
        if self._is_stalled:
            return
        self._is_stalled = True
        until_ms = self.now_ms + stalled_ms
        while self._actions and self._actions[0][0] <= until_ms:
            at_ms, _, action = heappop(self._actions)
            self._jump(at_ms)
            action()
        self._jump(until_ms)
        self._is_stalled = False

    def _jump(self, to_ms: int) -> None:
        if to_ms > self.now_ms:
            self._clock.jump(to_ms / 1000 - self._clock.current_time())
            self.now_ms = to_ms
