"""The faults of a simulated run, at random instants, until the host is calm."""

from collections.abc import Callable
from typing import Any

from stoker.broker.journal import JournalBrokenError

from .broker import Broker, Living
from .client import Caller
from .host import Host
from .supervisor import SimSupervisor
from .worker import SimWorker

DAY_MS = 24 * 3_600_000


class Chaos:
    """Does something bad every now and then. `sparing` supervisors are left alive."""

    def __init__(
        self,
        host: Host,
        broker: Broker,
        pause_ms: int,
        *,
        workers: Callable[[], list[SimWorker]],
        supervisors: Callable[[], list[SimSupervisor]],
        callers: list[Caller],
    ) -> None:
        self._host = host
        self._broker = broker
        self._pause_ms = pause_ms
        self._workers = workers
        self._supervisors = supervisors
        self._callers = callers
        self._faults: list[tuple[int, Callable[[], None]]] = [
            (10, broker.crash),
            (4, lambda: broker.when_up(self._stall)),
            (6, lambda: broker.when_up(self._slow_disk)),
            (3, lambda: broker.when_up(self._full_disk)),
            (3, self._break_journal),
            (4, self._step_wall_clock),
            (3, self._sleep),
            (8, lambda: self._any_worker().process.die()),
            (5, lambda: self._any_worker().stop_for(self._host.span_ms(10, 6000))),
            (8, lambda: self._any_worker().cut()),
            (2, lambda: self._any_supervisor().process.die()),
            (4, lambda: self._any_supervisor().cut()),
            (6, lambda: self._pick(self._callers).cut()),
        ]
        self._next()

    def _next(self) -> None:
        self._host.heap.after(self._host.pause_ms(self._pause_ms), self._strike)

    def _strike(self) -> None:
        if not self._host.calm:
            weights = [weight for weight, _ in self._faults]
            self._host.heap.random.choices([fault for _, fault in self._faults], weights)[0]()
            self._next()

    def _pick(self, choices: list[Any]) -> Any:
        return self._host.heap.random.choice(choices)

    def _between(self, low: int, high: int) -> int:
        return self._host.heap.between(low, high)

    def _any_worker(self) -> SimWorker:
        worker: SimWorker = self._pick(self._workers())
        return worker

    def _any_supervisor(self) -> SimSupervisor:
        supervisor: SimSupervisor = self._pick(self._supervisors())
        return supervisor

    def _stall(self, life: Living) -> None:
        life.stall(self._host.span_ms(100, 8000))

    def _slow_disk(self, life: Living) -> None:
        life.disk.extra_ms = self._between(0, 400)

    def _full_disk(self, life: Living) -> None:
        life.fill_disk(self._between(1, 4))

    def _break_journal(self) -> None:
        nth = self._between(1, 5)
        stored = self._host.heap.happens(0.5)
        self._broker.journal.fail_commit(nth, JournalBrokenError, stored=stored)

    def _step_wall_clock(self) -> None:
        self._host.clock.set_wall(self._pick([-400 * DAY_MS, -3_600_000, -5, 5, 3_600_000, DAY_MS]))

    def _sleep(self) -> None:
        self._host.clock.slept_ms += self._between(1, 20_000)
