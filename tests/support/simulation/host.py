"""The machine of a simulated run: time, chance, processes, and the history of all of it."""

from collections.abc import Callable

from ..history import History
from .heap import Heap, HostClock
from .weather import ALWAYS, Forecast, Weather


class Host:
    """What every actor shares. `calm` is set when faults have stopped: from then on all goes well."""

    def __init__(self, heap: Heap, weather: Weather = ALWAYS, stretch: int = 1) -> None:
        self.heap = heap
        self.stretch = stretch
        self._weather = Forecast(heap, weather)
        self.clock = HostClock(self.heap)
        self.history = History()
        self.calm = False
        self._pids = 1000

    @property
    def now_ms(self) -> int:
        return self.heap.now_ms

    def pause_ms(self, mean_ms: int) -> int:
        """How long somebody who acts every so often waits until the next time."""
        return self.heap.between(0, 2 * mean_ms) if self.calm else self._weather.pause_ms(mean_ms)

    def span_ms(self, low_ms: int, high_ms: int) -> int:
        """A time that has to do with leases and limits, and is as long as those are in this run."""
        return self.heap.between(low_ms, high_ms) * self.stretch

    def note(self, text: str) -> None:
        """A line of the trace that is no matter for the oracle."""
        self.history.note(self.now_ms, text)

    def next_pid(self) -> int:
        """Pids are never used twice here: the nonce is what guards against that."""
        self._pids += 1
        return self._pids


class Process:
    """A process that can be stopped, continued and killed."""

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self.name = name
        self.pid = host.next_pid()
        self.alive = True
        self.stopped = False
        self._deaths: list[Callable[[], None]] = []
        self._held: list[Callable[[], None]] = []

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later, if the process lives then; when it is stopped then, once it goes on."""
        self._host.heap.after(delay_ms, lambda: self._do(action))

    def _do(self, action: Callable[[], None]) -> None:
        if self.stopped:
            self._held.append(action)
        elif self.alive:
            action()

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        held, self._held = self._held, []
        for action in held:
            self._do(action)

    def on_death(self, action: Callable[[], None]) -> None:
        """Call when the process has ended."""
        self._deaths.append(action)

    def die(self) -> None:
        """SIGKILL: nothing of it is done any more."""
        if self.alive:
            self.alive, self.stopped = False, False
            self._host.note(f"died {self.name}")
            for action in self._deaths:
                action()
