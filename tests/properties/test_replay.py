"""Replay equals live: at every batch boundary a core restored from the journal is the one that lived.

Histories are random. After each batch the journal is "crashed", a new core is restored from it, and
the two are compared: every live job field by field, every queue, and the order in which a worker
that takes one job after the other would get them.
"""

from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.driving import restored
from support.lockstep import FakeClock, Lockstep, NumberedCore

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.job import COLUMNS, Job
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.proto import messages, work
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules

RULES = Rules(queues={"spill": QueueRules(jobs_max=3, overflow=Overflow.DEAD)})
KINDS = ("a", "b")
NEVER_RESTORED = frozenset({"epoch"})
"""Fields that name the start they were last read by."""

Step = Callable[["Past"], None]


class Compared(NumberedCore):
    """A core that shows what a restart must bring back."""

    def lasting(self) -> dict[str, Any]:
        memory = self._memory
        return {
            "jobs": {job.number: self._fields(job) for job in memory.jobs.values()},
            "queues": {
                queue.name: (queue.counts, queue.bytes, queue.paused) for queue in memory.queues.values()
            },
            "unresolved": {kind: set(jobs) for kind, jobs in memory.unresolved.items()},
            "leases": {lease.token: lease.worker.identity for lease in self._leasing.leases.values()},
            "kinds": memory.kinds,
            "paused": memory.paused_all,
            "ids_kept": memory.ids_kept,
        }

    @staticmethod
    def _fields(job: Job) -> dict[str, Any]:
        return {name: getattr(job, name) for name in COLUMNS if name not in NEVER_RESTORED}


class Past(Lockstep):
    """A history in the making: one client, one pool's declarations, three raw workers."""

    core: Compared

    def __init__(self) -> None:
        super().__init__(RULES, lambda: 0.5, Compared)
        self.client = self.connect()
        self.workers = [self.connect(pid) for pid in (11, 12, 13)]
        for number, worker in enumerate(self.workers):
            identity = ["boot-1", 1, number, number, f"nonce-{number}"]
            self.ask(worker, messages.Hello(1, "work", identity=identity, kinds=KINDS[: number + 1], slots=2))

    def say(self, message: Any, connection: int | None = None) -> None:
        """A request within the open batch, unless a look-up asks for what is still in it."""
        if self.core.wants(message):
            self.commit()
        self.ask_within_batch(self.client if connection is None else connection, message)

    def held(self) -> list[tuple[int, Any]]:
        """(connection, token) of every job that was handed out, in order."""
        return [(to, message.token) for to, message in self.pushes if isinstance(message, work.Job)]

    def report(self, choice: int, message: Any) -> None:
        held = self.held()
        if held:
            connection, token = held[choice % len(held)]
            self.say(message._replace(token=token), connection)

    def pass_time(self, passed_ms: int) -> None:
        self.clock.pass_time(passed_ms)
        self.step(ev.TimePassed())


def _enqueue(
    past: Past, id: str, kind: str, queue: str | None, priority: int | None, waits: dict[str, int]
) -> None:
    run_at_ms = past.clock.now().wall_ms + waits["date"] if "date" in waits else None
    delay_ms, expires_ms = waits.get("delay_ms"), waits.get("expires_ms")
    past.say(
        messages.Enqueue(
            id,
            kind,
            b"payload",
            queue=queue,
            priority=priority,
            delay_ms=delay_ms,
            run_at_ms=run_at_ms,
            expires_ms=expires_ms,
        )
    )


def _declare(past: Past, queue: str, priority: int) -> None:
    kinds = [{"kind": "late", "queue": queue, "priority": priority, "expires_ms": 5000}]
    identity = ["boot-1", 1, 99, 99, "supervisor"]
    past.say(work.Pool(1, "pool", bytes(16), identity, kinds), past.connect())


def _say_of(op: Callable[[str], Any]) -> Callable[[Past, str], None]:
    """The step that sends an op of one job or queue."""
    return lambda past, name: past.say(op(name))


IDS = st.sampled_from([f"job-{n}" for n in range(15)])
QUEUES = st.sampled_from(["spill", "wide", "other"])
CHOICES = st.integers(0, 50)
WAITS = st.sampled_from([{}, {}, {}, {"delay_ms": 3000}, {"date": 4000}, {"expires_ms": 6000}])


def _step(function: Callable[..., None], *choices: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*choices).map(lambda drawn: lambda past: function(past, *drawn))


ENQUEUE = _step(
    _enqueue,
    IDS,
    st.sampled_from(["a", "b", "late"]),
    st.one_of(st.none(), QUEUES),
    st.sampled_from([None, -1, 2]),
    WAITS,
)
REPORTS: list[Any] = [
    work.Ack([], b"result"),
    work.Nack([], "error", "why"),
    work.Nack([], "permanent", "why"),
    work.Release([], "released"),
    work.Release([], "not_started"),
]
STEPS = st.one_of(
    ENQUEUE,
    ENQUEUE,
    _step(Past.report, CHOICES, st.sampled_from(REPORTS)),
    _step(Past.report, CHOICES, st.sampled_from(REPORTS)),
    _step(_say_of(messages.Cancel), IDS),
    _step(_say_of(messages.Kick), IDS),
    _step(_say_of(messages.Drop), IDS),
    _step(_say_of(messages.Pause), QUEUES),
    _step(_say_of(messages.Resume), QUEUES),
    _step(Past.pass_time, st.sampled_from([1, 2500, 20_000, 70_000])),
    _step(_declare, QUEUES, st.sampled_from([-3, 4])),
)


@pytest.mark.slow
@given(st.lists(st.lists(STEPS, min_size=1, max_size=5), max_size=15))
def test_restored_core_equals_the_live_one(batches: list[list[Step]]) -> None:
    past = Past()
    for batch in batches:
        for step in batch:
            step(past)
        past.settle()
        past.commit()
        again = restored(past.journal.crash(), Compared, RULES, past.clock, lambda: 0.5)
        assert again.lasting() == past.core.lasting()
        assert again.sequence >= past.core.sequence
        assert handed_out(again, past.clock) == handed_out(deepcopy(past.core), past.clock)


def handed_out(core: Core, clock: FakeClock) -> dict[str, list[str]]:
    """The jobs of each queue in the order in which one worker gets them. Uses the core up."""
    step = partial(core.step, now=clock.now())
    new = 1_000_000
    step(ev.Connected(new, 1000, 5))
    effects = step(ev.Received(new, 1, messages.Hello(1, "work", kinds=("a", "b", "late"), slots=1)))
    order: defaultdict[str, list[str]] = defaultdict(list)
    while jobs := [
        effect.message for effect in effects if isinstance(effect, fx.Push) and effect.connection == new
    ]:
        job: Any = jobs[0]
        order[job.queue].append(job.id)
        effects = step(ev.Received(new, 2, work.Ack(job.token)))
    return order
