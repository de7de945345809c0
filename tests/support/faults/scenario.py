"""A broker in use, through several lives on one journal: every kind of request, and what came of it.

Everything is drawn from one seed. The history says what was asked and answered, each record with the
position on the tape at which it happened, so that one can say what had been promised before any
operation of the disk. Workers die with the broker: what this is about is the disk.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.journal import Journal, Retention
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.messages import Message, Refusal
from stoker.proto.model import FINAL_STATES, Overflow
from stoker.proto.queuerules import QueueRules

from .. import history as h
from ..committers import MakeCommitter, make_committer
from ..lockstep import FakeClock
from .station import Station

POLICY = {"backoff_ms": 200, "backoff_cap_ms": 2000}
FLOODED = "flooded"
RULES = Rules(
    queue_default=QueueRules(jobs_max=60, policy=POLICY),
    # What is too much for it is stored at once all the same, and nobody has to work it off.
    queues={FLOODED: QueueRules(jobs_max=5, overflow=Overflow.DEAD, policy=POLICY)},
)
RETENTION = Retention(done_kept_ms=600_000, done_kept_max=12, dead_kept_ms=600_000, dead_kept_max=6)

KINDS = ("send", "digest")
QUEUES = ("mail", "reports", None)
REPEATABLE = 10
"""So many of the last enqueues may be asked for again."""

LEAP_MS = 20 * limits.MINUTE_MS
"""Longer than ids of the library are remembered."""

FLOOD_JOBS_MIN = 110
FLOOD_JOBS_MAX = 160
"""Many times what any other batch has, and no more, because each image that is made afterwards holds them."""

FINISH_ROUNDS_MAX = 200

BOOTS_MAX = 1000


class HostClocks(FakeClock):
    """The clocks of a host that may be started anew."""

    def reboot(self) -> None:
        """The host was without power: its boot clock begins anew."""
        self.boot_id = f"boot-{int(self.boot_id.removeprefix('boot-')) + 1}"
        self.pass_time(1000)
        self._now = self._now._replace(boot_ms=1000)


class PlacedHistory(h.History):
    """A history whose every record has a place on the tape."""

    def __init__(self, position: Callable[[], int]) -> None:
        super().__init__()
        self._position = position
        self.places: list[int] = []

    def add(self, record: h.Record) -> None:
        self.places.append(self._position())
        super().add(record)


@attrs.define
class _Worker:
    """A raw worker, and what it holds."""

    name: str
    held: dict[h.Key, w.Job] = attrs.Factory(dict[h.Key, w.Job])
    doomed: set[h.Key] = attrs.Factory(set[h.Key])
    """Tokens that the broker wants cancelled."""


class Scenario:
    """See the module. One is a host with one state directory; `begin` starts a broker on a journal."""

    def __init__(
        self, chance: Random, position: Callable[[], int], committer: MakeCommitter = make_committer
    ) -> None:
        self.chance = chance
        self.clock = HostClocks()
        self.history = PlacedHistory(position)
        self._committer = committer
        self._station: Station | None = None
        self._client = 0
        self._workers: dict[int, _Worker] = {}
        self._lives = 0
        self._enqueued = 0
        self._unknown: dict[str, m.Enqueue] = {}
        self._known: list[m.Enqueue] = []
        self._ids: list[str] = []

    @property
    def station(self) -> Station:
        """The broker that is alive."""
        assert self._station is not None
        return self._station

    # --- lives --------------------------------------------------------------------------------------------

    def begin(self, journal: Journal) -> None:
        """A broker starts on what the journal holds; peers connect, and what is unclear is asked again."""
        self._lives += 1
        self._station = Station(
            journal,
            RULES,
            self.clock,
            self.chance.random,
            answered=self._answered,
            pushed=self._pushed,
            deleting=self._deleting,
            committer=self._committer,
        )
        self._client = self.station.connect()
        kinds = [{"kind": kind, "queue": "mail"} for kind in KINDS[: 1 + self._lives % 2]]
        supervisor = ["boot", 1, 100, self._lives, "supervisor"]
        self.station.ask(
            self.station.connect(), w.Pool(1, "pool", bytes([self._lives]) * 16, supervisor, kinds)
        )
        for nonce in ("w1", "w2"):
            self._add_worker(f"{nonce}-{self._lives}", slots=2)
        for id, message in self._unknown.items():
            self._unknown[id] = message._replace(fresh=False)
            self.station.ask(self._client, self._unknown[id])

    def _add_worker(self, name: str, slots: int) -> None:
        connection = self.station.connect()
        self._workers[connection] = _Worker(name)
        identity = ["boot", 1, 100 + self._lives, connection, name]
        self.station.ask(connection, m.Hello(1, "work", name, identity, b"", list(KINDS), slots))

    def end(self) -> None:
        """The broker is gone, and so are its workers; how the journal was left is the caller's doing."""
        now_ms = self._now_ms
        self._add(h.Crashed(now_ms))
        for worker in self._workers.values():
            self._add(h.Died(now_ms, worker.name))
            for token in worker.held:
                self._add(h.Stopped(now_ms, token))
        self._workers.clear()
        self._station = None

    def take_over(self, records: Sequence[h.Record]) -> None:
        """Go on where another run was when its host lost power; that is its history."""
        for record in records:
            self._add(record)
        workers = {record.worker for record in records if isinstance(record, h.Pushed)}
        running = {record.token for record in records if isinstance(record, h.Started)}
        running -= {record.token for record in records if isinstance(record, h.Stopped)}
        self.clock.pass_time(records[-1].at_ms if records else 0)
        # Not the id of any boot that the other run has seen.
        self.clock.boot_id = f"boot-{BOOTS_MAX}"
        self.clock.reboot()
        for worker in sorted(workers):
            self._add(h.Died(self._now_ms, worker))
        for token in sorted(running):
            self._add(h.Stopped(self._now_ms, token))

    def leap(self) -> None:
        """So much time passes, with no broker there, that ids may be forgotten."""
        self.clock.pass_time(LEAP_MS)
        self._known.clear()

    @property
    def _now_ms(self) -> int:
        return self.clock.now().mono_ms

    def _add(self, record: h.Record) -> None:
        self.history.add(record)

    # --- what is done -------------------------------------------------------------------------------------

    def act(self) -> None:
        """Something at random, and perhaps a commit."""
        acts: list[tuple[int, Callable[[], None]]] = [
            (30, self._enqueue),
            (30, self._work),
            (12, self._operate),
            (8, self._pass_time),
            (6, self._do_chore),
            (3, self._enqueue_again),
        ]
        self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
        if self.chance.random() < 0.5:
            self.station.pump()

    def flood(self) -> None:
        """A client enqueues more than a hundred jobs in one go, which are one batch."""
        for _ in range(self.chance.randint(FLOOD_JOBS_MIN, FLOOD_JOBS_MAX)):
            self._ask_for(self._new_job()._replace(payload=b"", queue=FLOODED))
        self.station.pump()

    def ebb(self) -> None:
        """An operator drops what is left of a flood, which is one batch as well."""
        self.station.ask(self._client, m.Drop(queue=FLOODED))
        self.station.pump()

    def _enqueue(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            message = self._new_job()
            self._ids = [*self._ids[-30:], message.id]
            self._ask_for(message)

    def _ask_for(self, message: m.Enqueue) -> None:
        self._unknown[message.id] = message
        self.station.ask(self._client, message)

    def _new_job(self) -> m.Enqueue:
        chance = self.chance
        self._enqueued += 1
        id = f"job-{self._enqueued}"
        size = chance.choice((0, 20, 200, 200, 1500, 6000))
        return m.Enqueue(
            id,
            chance.choice(KINDS),
            chance.randbytes(size),
            fresh=chance.random() < 0.5,
            queue=chance.choice(QUEUES),
            priority=chance.choice((None, None, -1, 5)),
            delay_ms=chance.choice((None, None, None, 500)),
            expires_ms=chance.choice((None, None, None, 5000)),
            attempts_max=chance.choice((None, 1, 2)),
            headers=chance.choice((None, None, {"trace": id})),
        )

    def _enqueue_again(self) -> None:
        if self._known:
            self.station.ask(self._client, self.chance.choice(self._known)._replace(fresh=False))

    def _work(self) -> None:
        """Some of what workers hold ends, as they see it."""
        for connection, worker in self._workers.items():
            for token in list(worker.held):
                if self.chance.random() < 0.5:
                    self._finish_attempt(connection, worker, token, self._any_end(token))

    def _any_end(self, token: h.Key) -> w.Ack | w.Nack | w.Release:
        chance, key = self.chance, list(token)
        ends: list[tuple[int, w.Ack | w.Nack | w.Release]] = [
            (6, w.Ack(key)),
            (3, w.Ack(key, result=chance.randbytes(chance.choice((3, 300))), output="some output")),
            (3, w.Nack(key, "error", "no such host", "a report")),
            (1, w.Nack(key, "permanent", "never again")),
            (1, w.Release(key, "released")),
            (1, w.Release(key, "not_started")),
        ]
        return chance.choices([end for _, end in ends], [weight for weight, _ in ends])[0]

    def _finish_attempt(
        self, connection: int, worker: _Worker, token: h.Key, end: w.Ack | w.Nack | w.Release
    ) -> None:
        if token in worker.doomed:
            end = w.Nack(list(token), "cancelled", "as was wished")
        del worker.held[token]
        self._add(h.Stopped(self._now_ms, token))
        self._add(h.Reached(self._now_ms, worker.name, token, type(end).__name__.lower()))
        self.station.ask(connection, end)

    def _operate(self) -> None:
        chance = self.chance
        queue = chance.choice(("mail", "reports", "default"))
        id = chance.choice(self._ids) if self._ids else "nothing"
        asks: list[tuple[int, Any]] = [
            (4, m.Cancel(id)),
            (4, m.Kick(id)),
            (1, m.Kick(queue=queue, limit=2)),
            (3, m.Drop(id)),
            (1, m.Drop(queue=queue, limit=2)),
            (1, m.Pause(queue)),
            (3, m.Resume(queue)),
            (2, m.Show(id, payload=True)),
        ]
        ask: Any = chance.choices([ask for _, ask in asks], [weight for weight, _ in asks])[0]
        self.station.ask(self._client, ask)

    def _pass_time(self) -> None:
        self.clock.pass_time(self.chance.randint(1, 1500))
        for connection, worker in self._workers.items():
            self.station.ask(connection, w.Heartbeat([list(token) for token in worker.held]))
        self.station.step(ev.TimePassed())

    def _do_chore(self) -> None:
        boot_ms = self.clock.now().boot_ms
        chore = self.chance.randrange(4)
        if chore == 0:
            self.station.forget_ids(boot_ms, 10)
        elif chore == 1:
            self.station.checkpoint()
        else:
            self.station.prune(RETENTION, boot_ms, 10)

    # --- what comes of it ---------------------------------------------------------------------------------

    def _answered(self, connection: int, asked: Message, answer: Message) -> None:
        if isinstance(asked, m.Enqueue):
            self._enqueue_answered(asked, answer)
        elif isinstance(asked, w.Ack | w.Nack | w.Release) and isinstance(answer, m.Done):
            worker, token = self._workers[connection].name, (asked.token[0], asked.token[1])
            self._add(h.Confirmed(self._now_ms, worker, token, type(asked).__name__.lower()))
        elif isinstance(answer, w.Wishes):
            self._workers[connection].doomed |= {(token[0], token[1]) for token in answer.cancel}

    def _enqueue_answered(self, asked: m.Enqueue, answer: Message) -> None:
        body = tuple(asked._replace(fresh=False))
        number = answer.number if isinstance(answer, m.Enqueued) else None
        code = answer.code if isinstance(answer, Refusal) else ""
        self._add(h.Enqueued(self._now_ms, asked.id, body, asked.fresh, number, code))
        self._unknown.pop(asked.id, None)
        if number is not None:
            self._known = [*self._known[-REPEATABLE:], asked]

    def _pushed(self, connection: int, job: w.Job) -> None:
        token, worker = (job.token[0], job.token[1]), self._workers[connection]
        self._add(h.Pushed(self._now_ms, job.id, token, worker.name, job.attempt, job.time_limit_ms))
        self._add(h.Started(self._now_ms, job.id, token, worker.name, False))
        worker.held[token] = job

    def _deleting(self, ids: list[str]) -> None:
        for id in ids:
            self._add(h.Dropped(self._now_ms, id))

    # --- the end ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All goes well from now on, until nothing is left to do; then the last record is made."""
        station = self.station
        for queue in (None, "mail", "reports", "default"):
            station.ask(self._client, m.Resume(queue))
        for _ in range(FINISH_ROUNDS_MAX):
            station.settle()
            if station.failure is not None or not station.core.statistics()["jobs"]:
                break
            for connection, worker in self._workers.items():
                for token in list(worker.held):
                    self._finish_attempt(connection, worker, token, w.Ack(list(token)))
            self.clock.pass_time(1000)
            station.step(ev.TimePassed())
        self._add(h.Ended(self._now_ms, self._rows(), self._counts()))

    def _rows(self) -> tuple[h.Row, ...]:
        jobs = self.station.journal.list_jobs(queue=None, state=None, kind=None, after=0, limit=10**6)
        return tuple(
            h.Row(
                job.id,
                job.number,
                job.queue,
                str(job.state),
                job.charged,
                job.crashes,
                job.attempts_max or limits.ATTEMPTS_MAX_DEFAULT,
                job.crashes_max or limits.CRASHES_MAX_DEFAULT,
            )
            for job in jobs
        )

    def _counts(self) -> dict[tuple[str, str], int]:
        queues = self.station.core.status()["queues"]
        states = {str(state) for state in FINAL_STATES} | {"ready", "scheduled", "leased"}
        return {
            (name, state): queue[state] for name, queue in queues.items() for state in states if queue[state]
        }
