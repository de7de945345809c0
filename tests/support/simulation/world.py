"""A whole simulated run: a broker, its clients and its workers, faults, then calm, then the verdict.

world = World(seed)
world.run()                   # AssertionError of a checker, or of the final bound
violations(world.history.records)
"""

from collections.abc import Callable

import attrs

from stoker.broker.core.rules import Rules
from stoker.broker.journal import Retention
from stoker.proto import limits

from .. import history as h
from .broker import Broker, SimBroker
from .chaos import Chaos
from .client import Caller, SimClient, SimOperator
from .heap import Heap
from .host import Host
from .life import REAL, Parts
from .supervisor import SimSupervisor
from .terms import SETTLE_MS, kinds, rules
from .weather import ALWAYS, Weather
from .worker import SimWorker

LATELY = 24
"""So many of a client's newest jobs are what an operator looks at."""


@attrs.frozen
class Plan:
    """How large a run is, and how bad."""

    chaos_ms: int = 30_000
    jobs_per_client: int = 25
    fault_every_ms: int = 700
    operator_every_ms: int = 500
    client_every_ms: int = 2500
    stretch: int = 1
    """Durations of leases, limits and waits are so many times as long."""
    weather: Weather = ALWAYS
    parts: Parts = REAL


STORMY = Plan()
CALM = Plan(fault_every_ms=0, operator_every_ms=0)

STRETCH = 30
"""Of leases of two seconds this makes the usual minute."""

LONG_HOURS = 4
LONG = Plan(
    chaos_ms=LONG_HOURS * limits.HOUR_MS,
    jobs_per_client=LONG_HOURS * 75,
    fault_every_ms=400,
    operator_every_ms=500,
    client_every_ms=2000,
    stretch=STRETCH,
    weather=Weather(storm_ms=4000, lull_ms=10 * limits.MINUTE_MS),
    parts=Parts(
        chores_ms=30 * limits.SECOND_MS,
        retention=Retention(
            done_kept_ms=20 * limits.MINUTE_MS,
            done_kept_max=40,
            dead_kept_ms=30 * limits.MINUTE_MS,
            dead_kept_max=40,
        ),
    ),
)
"""Hours of a broker with the usual durations: about 200 jobs and 100 faults an hour, half of them in storms."""


Make = Callable[[Host, Rules, Parts], Broker]


class World:
    """See the module."""

    def __init__(
        self, seed: int, plan: Plan = STORMY, host: Host | None = None, make: Make = SimBroker
    ) -> None:
        """`make` gives the broker; another one than the simulated may need a host of its own."""
        self.seed = seed
        self._plan = plan
        self.host = host or Host(Heap(seed), plan.weather, plan.stretch)
        self.host.calm = not plan.fault_every_ms
        self.broker = make(self.host, rules(plan.stretch), plan.parts)
        self._supervisors: list[SimSupervisor] = []
        self._raw: list[SimWorker] = []
        self._tickets = 0
        self._kinds = kinds(plan.stretch)
        self._populate()
        self.clients = [
            SimClient(self.host, self.broker, name, plan.jobs_per_client, plan.client_every_ms)
            for name in ("alice", "bob", "carol")
        ]
        self._callers: list[Caller] = list(self.clients)
        if plan.operator_every_ms:
            operator = SimOperator(self.host, self.broker, "operator", self._some_id, plan.operator_every_ms)
            self._callers.append(operator)
            self._operator = operator
        if plan.fault_every_ms:
            self._begin_chaos()

    @property
    def settle_ms(self) -> int:
        """Everything is finished so long after the last fault."""
        return SETTLE_MS * self._plan.stretch

    @property
    def history(self) -> h.History:
        return self.host.history

    def _some_id(self) -> str:
        """Of a job that a client has asked for lately, or is about to ask for."""
        client = self.host.heap.random.choice(self.clients)
        return f"{client.process.name}-{client.left + self.host.heap.between(-1, LATELY)}"

    # --- who is there -----------------------------------------------------------------------------------

    def _populate(self) -> None:
        self._add_supervisor(3)
        self._add_supervisor(1)
        self._add_raw("raw-1", ["send", "unheard"], 3)
        self._add_raw("raw-2", ["digest", "unheard"], 1)
        self._add_raw("text-1", ["send", "digest"], 2, is_text=True)

    def _add_supervisor(self, worker_count: int) -> None:
        self._tickets += 1
        name, ticket = f"pool-{self._tickets}", self._tickets.to_bytes(limits.TICKET_BYTES, "big")
        supervisor = SimSupervisor(self.host, self.broker, name, ticket, self._kinds, worker_count)
        self._supervisors.append(supervisor)
        supervisor.process.on_death(lambda: self._replace_supervisor(supervisor, worker_count))

    def _replace_supervisor(self, supervisor: SimSupervisor, worker_count: int) -> None:
        self._supervisors.remove(supervisor)
        self._add_supervisor(worker_count)

    def _add_raw(self, name: str, kinds: list[str], slots: int, *, is_text: bool = False) -> None:
        worker = SimWorker(self.host, self.broker, name, kinds, slots=slots, is_text=is_text)
        self._raw.append(worker)
        worker.process.on_death(lambda: self._replace_raw(worker, kinds, slots, is_text))

    def _replace_raw(self, worker: SimWorker, kinds: list[str], slots: int, is_text: bool) -> None:
        self._raw.remove(worker)
        self._add_raw(worker.name + "'", kinds, slots, is_text=is_text)

    def _workers(self) -> list[SimWorker]:
        pools = [worker for supervisor in self._supervisors for worker in supervisor.workers]
        return [worker for worker in pools if worker.process.alive] + self._raw

    def _begin_chaos(self) -> None:
        Chaos(
            self.host,
            self.broker,
            self._plan.fault_every_ms,
            workers=self._workers,
            supervisors=lambda: self._supervisors,
            callers=self._callers,
        )

    # --- running ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it. AssertionError if a checker found something, or not everything got finished."""
        heap = self.host.heap
        heap.run_until(self._plan.chaos_ms)
        self.make_calm()
        heap.run_until(heap.now_ms + self.settle_ms, self.is_settled)
        self.conclude()

    def conclude(self) -> None:
        """What must hold at the end, and what the oracle is to know of it."""
        unanswered = [ask for caller in self._callers for ask in caller.unanswered]
        assert not unanswered, f"everything_is_answered: {unanswered[0]}"
        assert self.is_settled(), "everything_ends: not everything was finished in time"
        life = self.broker.life
        assert life is not None
        life.core.check()
        self.history.add(h.Ended(self.host.now_ms, self._rows(), life.core.finished_counts()))

    def make_calm(self) -> None:
        """No fault from here on."""
        self.history.add(h.Calm(self.host.now_ms, self.settle_ms))
        self.host.calm = True
        # As far ahead as it ever was: every date that a client took from it is near now.
        self.host.clock.wall_step_ms = self.host.clock.wall_step_ms_highest
        for worker in self._workers():
            worker.process.go_on()
        if self._plan.operator_every_ms:
            self._operator.set_right()

    def is_settled(self) -> bool:
        """Everything is finished, answered, and told."""
        life = self.broker.life
        return (
            life is not None
            and all(client.is_content for client in self.clients)
            and not life.core.live_jobs()
            and not any(caller.unanswered for caller in self._callers)
            and life.is_idle
        )

    def _rows(self) -> tuple[h.Row, ...]:
        jobs = self.broker.journal.list_jobs(queue=None, state=None, kind=None, after=0, limit=10_000)
        declared = {str(kind["kind"]): kind for kind in self._kinds}
        return tuple(
            h.Row(
                job.id,
                job.number,
                job.queue,
                str(job.state),
                job.charged,
                job.crashes,
                job.attempts_max or limits.ATTEMPTS_MAX_DEFAULT,
                int(declared.get(job.kind, {}).get("crashes_max", limits.CRASHES_MAX_DEFAULT)),
                self._on_record(job.id),
            )
            for job in jobs
        )

    def _on_record(self, id: str) -> tuple[h.OnRecord, ...]:
        history = self.broker.journal.find(id, history=True).history
        return tuple(
            h.OnRecord((each["token_epoch"], each["token_counter"]), str(each["outcome"]), each["reason"])
            for each in history
        )
