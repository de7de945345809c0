"""A core in a house of its own: fake clocks, a journal in memory, peers with short names for what they say.

Every request is on disk before the next one comes, and after each the core's counts are compared with
a recount of the journal, so that every test of the core is also a test of its bookkeeping.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.job import Job
from stoker.broker.core.rules import Policy, Rules
from stoker.broker.questions import look_up
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.messages import Refusal
from stoker.proto.model import LIVE_STATES, State
from stoker.proto.queuerules import QueueRules

from .lockstep import Lockstep

TICKET = b"ticket of a pool"
KIND = "send"


def a_job(number: int = 1, **fields: Any) -> Job:
    """A ready job of kind `send` in queue `default`; `fields` replace what a test is about."""
    values: dict[str, Any] = {
        "number": number,
        "id": f"job-{number}",
        "body_hash": b"h" * 16,
        "id_by_caller": True,
        "kind": KIND,
        "queue": "default",
        "priority": 0,
        "position": number,
        "state": State.READY,
        "resolved": True,
        "payload_bytes": 10,
        "headers": None,
        "created_at_ms": 0,
        "epoch": 1,
        "created_boot_ms": 0,
    }
    return Job(**values | fields)


def a_policy(**fields: int) -> Policy:
    """The default policy with some values replaced."""
    return Policy(**fields)


def rules_of(**fields: Any) -> Rules:
    """Rules whose every queue has these limits."""
    return Rules(queue_default=QueueRules(**fields))


def fresh_id(wall_ms: int, number: int = 0) -> str:
    """A UUID of version 7 made at that time."""
    digits = f"{wall_ms:012x}7000{1 << 63 | number:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@attrs.define
class WorkerPeer:
    """A worker as a test knows it."""

    connection: int
    nonce: str
    ticket: bytes
    welcome: m.Welcome

    @property
    def identity(self) -> list[Any]:
        return identity_of(self.nonce)


def identity_of(nonce: str) -> list[Any]:
    """The identity of a process that differs from others by its nonce alone."""
    return ["boot-id-1", 1, 100, 5, nonce]


class House(Lockstep):
    """See the module."""

    def __init__(self, rules: Rules | None = None, chance: float = 0.0, *, checked: bool = True) -> None:
        self.closed: list[int] = []
        self.killed: list[int] = []
        self.logged: list[str] = []
        self.asked_at: int | None = None
        self._checked = checked
        self._pushes_read = 0
        super().__init__(rules or Rules(), lambda: chance)
        self.client = self.connect()

    def _take(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Close):
                self.closed.append(effect.connection)
            elif isinstance(effect, fx.KillPeer):
                self.killed.append(effect.connection)
            elif isinstance(effect, fx.Log):
                self.logged.append(effect.event)
        super()._take(effects)

    def commit(self) -> None:
        """Close the batch, and check the counts. A look-up that a test holds back is still outstanding."""
        if changes := self.core.take_changes():
            self.journal.commit(changes)
        self.core.trim_departed(self.core.steps if self.asked_at is None else self.asked_at)
        if self._checked:
            self.check()

    def check(self) -> None:
        """Every count equals a recount of what is on disk."""
        jobs = self.rows()
        queues = self.core.status()["queues"]
        counted = {
            (name, state): queue[state] for name, queue in queues.items() for state in State if queue[state]
        }
        assert counted == Counter((job.queue, job.state) for job in jobs)
        live = [job for job in jobs if job.state in LIVE_STATES]
        used: Counter[str] = Counter()
        for job in live:
            used[job.queue] += job.payload_bytes
        assert all(queue["bytes"] == used[name] for name, queue in queues.items())
        sizes = self.core.statistics()
        assert sizes["jobs"] == len(live)
        assert sizes["leases"] == sum(job.state is State.LEASED for job in live)

    @property
    def last_request(self) -> int:
        """The id of the request that was sent last."""
        return self._requests

    def looked_up(self, message: Any) -> ev.Received:
        """A request whose look-up is made now, for a test to step it later."""
        self.asked_at = self.core.steps
        found = look_up(self.journal, self.core.wants(message))
        return ev.Received(self.client, 900, message, found, self.asked_at)

    # --- clients --------------------------------------------------------------------------------------

    def ok(self, connection: int, message: Any) -> Any:
        """The answer to a request that must not be refused."""
        answer = self.ask(connection, message)
        assert answer is not None and not isinstance(answer, Refusal), answer
        return answer

    def refused(self, connection: int, message: Any) -> str:
        """The code word of a request that must be refused."""
        answer = self.ask(connection, message)
        assert isinstance(answer, Refusal), answer
        return answer.code

    def enqueue(self, id: str, kind: str = KIND, payload: bytes = b"payload", **fields: Any) -> m.Enqueued:
        """A job that must be taken in."""
        answer: m.Enqueued = self.ok(self.client, m.Enqueue(id, kind, payload, **fields))
        return answer

    def show(self, id: str) -> dict[str, Any]:
        """Everything about a job."""
        shown: m.Shown = self.ok(self.client, m.Show(id))
        return dict(shown.job)

    def state(self, id: str) -> str:
        """Where a job is."""
        return str(self.show(id)["state"])

    def outcomes(self, id: str) -> list[str]:
        """How the attempts of a job ended."""
        return [row["outcome"] for row in self.show(id)["history"]]

    def why(self, id: str) -> str:
        """Every reason why a job is where it is, in one text."""
        because: m.Because = self.ok(self.client, m.Why(id))
        return "\n".join(because.reasons)

    def cancel(self, id: str) -> str:
        """What a cancel is told."""
        cancelled: m.Cancelled = self.ok(self.client, m.Cancel(id))
        return cancelled.state

    def rows(self) -> Sequence[Job]:
        """All jobs on disk."""
        return self.journal.list_jobs(queue=None, state=None, kind=None, after=0, limit=10**9)

    def row(self, id: str) -> Job:
        """One job as it is on disk."""
        return next(job for job in self.rows() if job.id == id)

    def status(self) -> dict[str, Any]:
        """What a person sees of the whole."""
        return self.core.status()

    # --- workers and supervisors ----------------------------------------------------------------------

    def worker(
        self,
        nonce: str = "nonce-w1",
        *,
        kinds: Sequence[str] = (KIND,),
        slots: int = 1,
        ticket: bytes = b"",
        held: Sequence[Sequence[Any]] = (),
    ) -> WorkerPeer:
        """A worker that said hello, anew if its nonce was here before."""
        connection = self.connect()
        hello = m.Hello(1, "work", nonce, identity_of(nonce), ticket, list(kinds), slots, held)
        return WorkerPeer(connection, nonce, ticket, self.ok(connection, hello))

    def raw_worker(self, *, is_text: bool = False) -> int:
        """A connection that works without saying who it is."""
        self._connections += 1
        self.event(ev.Connected(self._connections, 1000, 7, is_text))
        self.ok(self._connections, m.Hello(1, "work", "", (), b"", [KIND], 1))
        return self._connections

    def pool(self, **fields: Any) -> w.Pool:
        """What a supervisor says first."""
        values: dict[str, Any] = {
            "version": 1,
            "name": "pool",
            "ticket": TICKET,
            "identity": identity_of("nonce-supervisor"),
            "kinds": [{"kind": KIND}],
        }
        return w.Pool(**values | fields)

    def supervisor(self, **fields: Any) -> int:
        """A connection that said pool."""
        connection = self.connect()
        self.ok(connection, self.pool(**fields))
        return connection

    def pushed(self, kind: type[Any]) -> list[tuple[int, Any]]:
        """What was pushed since the last call, of one kind: (connection, message)."""
        new, self._pushes_read = self.pushes[self._pushes_read :], len(self.pushes)
        return [(connection, message) for connection, message in new if isinstance(message, kind)]

    def granted(self) -> list[str]:
        """Ids of the jobs handed out since the last call, in order."""
        return [job.id for _, job in self.pushed(w.Job)]

    def token(self, id: str) -> list[int]:
        """The last token of a job."""
        job = self.row(id)
        return list(job.token)

    def ack(self, worker: WorkerPeer, id: str, result: bytes | None = None) -> None:
        """The holder of a job finishes it."""
        self.ok(worker.connection, w.Ack(self.token(id), result))

    def nack(self, worker: WorkerPeer, id: str, outcome: str = "error", **fields: Any) -> None:
        """The holder of a job fails at it."""
        self.ok(worker.connection, w.Nack(self.token(id), outcome, "no such host", **fields))

    def supervised(self, nonce: str = "nonce-w1") -> tuple[int, WorkerPeer]:
        """A supervisor, and a worker of it that runs job `a`."""
        supervisor = self.supervisor(workers=[nonce])
        worker = self.worker(nonce, ticket=TICKET)
        self.enqueue("a")
        assert self.state("a") == "leased"
        return supervisor, worker

    # --- time and ends ----------------------------------------------------------------------------------

    def pass_time(self, passed_ms: int) -> None:
        """All clocks go on, and the core looks at them."""
        self.clock.pass_time(passed_ms)
        self.event(ev.TimePassed())

    def hang_up(self, connection: int) -> None:
        """End of file."""
        self.event(ev.Disconnected(connection))

    def die(self, connection: int) -> None:
        """The process of a connection ends."""
        self.event(ev.PeerExited(connection))
        self.event(ev.Disconnected(connection))
