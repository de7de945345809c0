"""A whole simulated run: a broker, its clients and its workers, faults, then calm, then the verdict.

world = World(seed)
world.run()                   # AssertionError of a checker, or of the final bound
violations(world.history.records)
"""

from typing import Any

import attrs

from stoker.broker.core.rules import Rules
from stoker.proto import limits
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules

from .. import history as h
from .broker import SimBroker
from .chaos import Chaos
from .client import Caller, SimClient, SimOperator
from .host import Host
from .life import REAL, Parts
from .supervisor import SimSupervisor
from .worker import SimWorker

SEND: dict[str, Any] = {
    "kind": "send",
    "queue": "mail",
    "lease_ms": 2000,
    "time_limit_ms": 3000,
    "backoff_ms": 100,
    "backoff_cap_ms": 4000,
}
DIGEST: dict[str, Any] = {
    "kind": "digest",
    "priority": -2,
    "lease_ms": 3000,
    "time_limit_ms": 6000,
    "backoff_ms": 500,
    "backoff_cap_ms": 5000,
}
POISON: dict[str, Any] = {"kind": "poison", "crashes_max": 3, "backoff_ms": 100, "backoff_cap_ms": 1000}
SHORT = {"lease_ms": 2000, "time_limit_ms": 4000, "backoff_ms": 100, "backoff_cap_ms": 2000}
KINDS = (SEND, DIGEST, POISON)

RULES = Rules(
    queue_default=QueueRules(jobs_max=20, overflow=Overflow.WAIT, policy=SHORT),
    queues={
        "mail": QueueRules(jobs_max=12, bytes_max=3000, policy=SHORT),
        "reports": QueueRules(
            jobs_max=6,
            dead_max=20,
            overflow=Overflow.DEAD,
            policy=SHORT | {"backoff_cap_ms": 1000},
        ),
    },
    heartbeat_ms_max=500,
    reconnect_grace_ms=3000,
    supervisor_grace_ms=4000,
    kill_grace_ms=500,
)

LONGEST_ROUND_MS = (
    int(DIGEST["time_limit_ms"])
    + RULES.kill_grace_ms
    + RULES.reconnect_grace_ms
    + RULES.supervisor_grace_ms
    + int(DIGEST["backoff_cap_ms"])
)
"""One attempt that hangs, whose kill is not heard, whose supervisor is silent, and its backoff."""

SETTLE_MS = limits.ATTEMPTS_MAX_DEFAULT * LONGEST_ROUND_MS
"""Everything is finished so long after the last fault: every attempt of a job may go that way."""


@attrs.frozen
class Plan:
    """How large a run is, and how bad."""

    chaos_ms: int = 30_000
    jobs_per_client: int = 25
    fault_every_ms: int = 700
    operator_every_ms: int = 500
    parts: Parts = REAL


STORMY = Plan()
CALM = Plan(fault_every_ms=0, operator_every_ms=0)


class World:
    """See the module."""

    def __init__(self, seed: int, plan: Plan = STORMY) -> None:
        self.seed = seed
        self._plan = plan
        self.host = Host(seed)
        self.host.calm = not plan.fault_every_ms
        self.broker = SimBroker(self.host, RULES, plan.parts)
        self._supervisors: list[SimSupervisor] = []
        self._raw: list[SimWorker] = []
        self._tickets = 0
        self._populate()
        pause_ms = plan.chaos_ms // (plan.jobs_per_client // 2)
        names = ("alice", "bob", "carol")
        self.clients = [
            SimClient(self.host, self.broker, name, plan.jobs_per_client, pause_ms) for name in names
        ]
        self._callers: list[Caller] = list(self.clients)
        if plan.operator_every_ms:
            ids = [f"{name}-{n}" for name in names for n in range(plan.jobs_per_client)]
            operator = SimOperator(self.host, self.broker, "operator", ids, plan.operator_every_ms)
            self._callers.append(operator)
            self._operator = operator
        if plan.fault_every_ms:
            self._begin_chaos()

    @property
    def history(self) -> h.History:
        return self.host.history

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
        supervisor = SimSupervisor(self.host, self.broker, name, ticket, KINDS, worker_count)
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
        self._make_calm()
        heap.run_until(heap.now_ms + SETTLE_MS, self._is_settled)
        unanswered = [ask for caller in self._callers for ask in caller.unanswered]
        assert not unanswered, f"everything_is_answered: {unanswered[0]}"
        assert self._is_settled(), "everything_ends: not everything was finished in time"
        life = self.broker.life
        assert life is not None
        life.core.check()
        self.history.add(h.Ended(self.host.now_ms, self._rows(), life.core.finished_counts()))

    def _make_calm(self) -> None:
        self.host.note("calm")
        self.host.calm = True
        # As far ahead as it ever was: every date that a client took from it is near now.
        self.host.clock.wall_step_ms = self.host.clock.wall_step_ms_highest
        for worker in self._workers():
            worker.process.go_on()
        if self._plan.operator_every_ms:
            self._operator.set_right()

    def _is_settled(self) -> bool:
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
        kinds = {str(kind["kind"]): kind for kind in KINDS}
        return tuple(
            h.Row(
                job.id,
                job.number,
                job.queue,
                str(job.state),
                job.charged,
                job.crashes,
                job.attempts_max or limits.ATTEMPTS_MAX_DEFAULT,
                int(kinds.get(job.kind, {}).get("crashes_max", limits.CRASHES_MAX_DEFAULT)),
            )
            for job in jobs
        )
