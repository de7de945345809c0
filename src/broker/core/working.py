"""What workers and supervisors say: hello, pool, ack, nack, release.

A token counts only from the worker that holds it, and only while its lease lives. Anything else is
`lease_lost` and changes nothing, with one exception: a repeat of the very op that ended the token
is answered as the first was, because a worker keeps an ack until it is confirmed and may not have
seen the confirmation.
"""

from collections.abc import Sequence
from typing import Any

from ...proto import limits, messages, work
from ...proto.model import Outcome
from . import effects as fx
from .enqueueing import Enqueueing
from .events import Received
from .leasing import Leasing
from .liveness import Liveness
from .memory import Memory
from .workers import Key, Lease, Peer, Pool, Registry, Worker, identity_text

POLICY_NAMES = (
    "queue",
    "priority",
    "expires_ms",
    "attempts_max",
    "crashes_max",
    "time_limit_ms",
    "lease_ms",
    "backoff_ms",
    "backoff_cap_ms",
)


class Working:
    """The ops of the roles work and supervise."""

    def __init__(
        self,
        memory: Memory,
        registry: Registry,
        leasing: Leasing,
        liveness: Liveness,
        enqueueing: Enqueueing,
    ) -> None:
        self._memory = memory
        self._registry = registry
        self._leasing = leasing
        self._liveness = liveness
        self._enqueueing = enqueueing
        self.conflicts: dict[str, str] = {}
        """Kinds that pools declare differently, and how, for `status`."""

    # --- first messages --------------------------------------------------------------------------------

    def hello(self, event: Received, message: messages.Hello) -> None:
        """A client only learns the limits; a worker takes its place and says what it holds."""
        peer = self._registry.peers[event.connection]
        lost: list[messages.Token] = []
        if message.role == "work":
            lost = self._worker_hello(peer, message)
        self._memory.answer(event.connection, event.request, self._welcome(None, lost))
        if peer.worker is not None:
            # After the answer, so that a worker never sees a job before its welcome.
            self._leasing.fill(peer.worker)

    def _welcome(self, pool: Pool | None, lost: Sequence[messages.Token] = ()) -> messages.Welcome:
        return messages.Welcome(
            version=limits.PROTOCOL_VERSION,
            epoch=self._memory.epoch,
            heartbeat_ms=self._liveness.heartbeat_ms(pool),
            frame_bytes_max=limits.FRAME_BYTES_MAX,
            payload_bytes_max=limits.PAYLOAD_BYTES_MAX,
            result_bytes_max=limits.RESULT_BYTES_MAX,
            lost=lost,
        )

    def _worker_hello(self, peer: Peer, message: messages.Hello) -> list[messages.Token]:
        worker = self._worker_of(peer, message)
        peer.worker = worker
        held = {(int(entry[0]), int(entry[1])): str(entry[2]) for entry in message.held}
        lost: list[messages.Token] = []
        for token, phase in held.items():
            if token not in worker.leases and not (phase == "finished" and token in worker.ended):
                lost.append(list(token))
        for lease in list(worker.leases.values()):
            self._settle_held(lease, held.get(lease.token))
        self._registry.refresh(worker)
        return lost

    def _settle_held(self, lease: Lease, phase: str | None) -> None:
        if phase is None:
            reason = "its worker came back without it"
            self._leasing.end(lease, Outcome.RELEASED, op="release", reason=reason)
        elif phase == "unstarted":
            self._leasing.never_started(lease, "release")
        else:
            lease.deadline_ms = self._memory.now.mono_ms + lease.lease_ms

    def _worker_of(self, peer: Peer, message: messages.Hello) -> Worker:
        """The known worker of this identity on its new connection, or a new one."""
        raw = f"connection/{self._memory.epoch}/{peer.connection}"
        identity = identity_text(message.identity) if message.identity else raw
        worker = self._registry.workers.get(identity)
        if worker is None:
            worker = Worker(
                identity=identity,
                name=message.name or identity,
                nonce=str(message.identity[4]) if message.identity else raw,
                pid=int(message.identity[2]) if message.identity else peer.pid,
                ticket=bytes(message.ticket),
                kinds=frozenset(message.kinds),
                slots=message.slots,
            )
        elif worker.connection is not None and worker.connection != peer.connection:
            self._memory.effects.append(fx.Close(worker.connection, "the worker said hello anew"))
        # Out of the indexes while what they go by changes, and back in below.
        self._registry.forget_worker(worker)
        worker.ticket = bytes(message.ticket)
        worker.kinds, worker.slots = frozenset(message.kinds), message.slots
        worker.name, worker.is_text = message.name or worker.name, peer.is_text
        worker.connection, worker.dead, worker.back_by_ms = peer.connection, False, 0
        self._registry.add_worker(worker)
        return worker

    def pool(self, event: Received, message: work.Pool) -> None:
        """A supervisor takes its place and declares the kinds it serves."""
        peer = self._registry.peers[event.connection]
        pool = self._registry.pools.get(message.ticket)
        if pool is None:
            pool = self._registry.pools[message.ticket] = Pool(message.ticket, message.name)
        elif pool.connection is not None and pool.connection != event.connection:
            self._memory.effects.append(fx.Close(pool.connection, "the supervisor said pool anew"))
        pool.name, pool.pid = message.name, int(message.identity[2])
        pool.connection, pool.dead, pool.gone_by_ms = event.connection, False, 0
        peer.pool = pool
        declared = {str(kind["kind"]): _policy(kind) for kind in message.kinds}
        pool.kinds = declared
        for kind, policy in declared.items():
            self._declare(pool, kind, policy)
        pool.heartbeat_ms = self._liveness.heartbeat_ms(pool)
        self._memory.answer(event.connection, event.request, self._welcome(pool))
        self._liveness.repeat_kills(pool)

    def _declare(self, pool: Pool, kind: str, policy: dict[str, Any]) -> None:
        memory = self._memory
        known = memory.kinds.get(kind)
        if known is not None and known[1] == policy:
            return
        others = [other.name for other in self._registry.pools.values() if other is not pool]
        if known is not None and known[0] != pool.name and known[0] in others:
            self.conflicts[kind] = f"pools {known[0]} and {pool.name} declare kind {kind} differently"
        else:
            self.conflicts.pop(kind, None)
        memory.declare_kind(kind, pool.name, policy)
        self._enqueueing.kind_declared(kind)

    # --- ends of attempts --------------------------------------------------------------------------------

    def ack(self, event: Received, message: work.Ack) -> None:
        """The attempt succeeded, unless it was already over its time limit."""
        lease = self._lease(event, message.token, "ack")
        if lease is None:
            return
        # The answer is made first: it leaves in front of the next job, after the same commit.
        self._memory.answer(event.connection, event.request, messages.Done())
        if lease.kill is Outcome.TIMEOUT:
            reason = "finished, but only after its time limit"
            self._leasing.end(lease, Outcome.TIMEOUT, op="ack", reason=reason)
        else:
            duration_ms, result = message.duration_ms, message.result
            self._leasing.end(lease, Outcome.OK, op="ack", duration_ms=duration_ms, result=result)

    def nack(self, event: Received, message: work.Nack) -> None:
        """The attempt failed; a kill that was under way says why, else the worker does."""
        lease = self._lease(event, message.token, "nack")
        if lease is None:
            return
        self._memory.answer(event.connection, event.request, messages.Done())
        outcome = Outcome(message.outcome)
        if lease.kill is not None and outcome in (Outcome.TIMEOUT, Outcome.CANCELLED):
            outcome = lease.kill
        self._leasing.end(
            lease,
            outcome,
            op="nack",
            reason=message.reason,
            report=message.report,
            after_ms=message.after_ms,
            duration_ms=message.duration_ms,
        )

    def release(self, event: Received, message: work.Release) -> None:
        """Given back without fault."""
        lease = self._lease(event, message.token, "release")
        if lease is None:
            return
        self._memory.answer(event.connection, event.request, messages.Done())
        if message.reason == "not_started":
            self._leasing.never_started(lease, "release")
        else:
            outcome = Outcome(message.reason)
            self._leasing.end(lease, outcome, op="release", reason=f"{message.reason} by its worker")

    def _lease(self, event: Received, token: messages.Token, op: str) -> Lease | None:
        """The live lease this connection's worker holds under a token; else the request is answered."""
        worker = self._registry.peers[event.connection].worker
        key: Key = (token[0], token[1])
        lease = self._leasing.leases.get(key)
        if worker is not None and lease is not None and lease.worker is worker:
            return lease
        if worker is not None and worker.ended.get(key) == op:
            self._memory.answer(event.connection, event.request, messages.Done())
        else:
            text = f"token {key[0]}.{key[1]} is not that of a live lease of this worker"
            self._memory.refuse(event.connection, event.request, "lease_lost", text)
        return None


def _policy(kind: Any) -> dict[str, Any]:
    return {name: kind[name] for name in POLICY_NAMES if kind.get(name) is not None}
