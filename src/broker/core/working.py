"""What workers and supervisors say: hello, pool, ack, nack, release.

A token counts only from the worker that holds it, and only while its lease lives. Anything else is
`lease_lost` and changes nothing, with one exception: a repeat of the very op that ended the token
is answered as the first was, because a worker keeps an ack until it is confirmed and may not have
seen the confirmation.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...proto import limits, messages, work
from ...proto.model import Outcome
from ...proto.rules import KIND_POLICY
from . import effects as fx
from .enqueueing import Enqueueing, cap_below_base
from .events import Received
from .following import Following
from .leasing import Leasing
from .liveness import Liveness
from .memory import Memory
from .turns import contradiction, turns_of
from .workers import RAW, Key, Lease, Peer, Pool, Registry, Worker, identity_text


class Working:
    """The ops of the roles work and supervise."""

    def __init__(
        self,
        memory: Memory,
        registry: Registry,
        leasing: Leasing,
        liveness: Liveness,
        enqueueing: Enqueueing,
        following: Following,
    ) -> None:
        self._memory = memory
        self._registry = registry
        self._leasing = leasing
        self._liveness = liveness
        self._enqueueing = enqueueing
        self._following = following

    # --- first messages --------------------------------------------------------------------------------

    def hello(self, event: Received, message: messages.Hello) -> None:
        """A client only learns the limits; a worker takes its place and says what it holds."""
        peer = self._registry.peers[event.connection]
        if message.role != "work":
            self._memory.answer(event.connection, event.request, self._welcome(None))
        elif wrong := self._wrong_hello(peer, message):
            self._turn_away(event, wrong)
        else:
            self._worker_hello(event, peer, message)

    def _turn_away(self, event: Received, wrong: str, code: str = "bad_message") -> None:
        # A connection has one first message, so one that was refused leaves nothing it could be.
        self._memory.refuse(event.connection, event.request, code, wrong)
        self._memory.effects.append(fx.Close(event.connection, wrong))

    def _wrong_hello(self, peer: Peer, message: messages.Hello) -> str:
        """What is wrong with a worker's introduction; empty if nothing is."""
        if peer.worker is not None or peer.pool is not None:
            return "hello: this connection has introduced itself already"
        if not message.identity:
            return "hello: a `ticket` needs an `identity` to report on" if message.ticket else ""
        if wrong := contradiction(message.queues):
            return wrong
        known = self._registry.workers.get(identity_text(message.identity))
        if known is not None and known.dead:
            return "hello: the process of this identity has ended"
        if known is not None and (known.connection or 0) > peer.connection:
            # Read late: connection numbers grow, so that one was opened after this one.
            return "hello: this worker has a newer connection"
        if known is not None and known.ticket and known.ticket != message.ticket:
            return "hello: this identity belongs to another supervisor"
        namesake = self._registry.by_nonce(message.ticket, message.identity[4])
        if namesake is not None and namesake is not known:
            return "hello: another worker of this supervisor has this nonce"
        return ""

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

    def _worker_hello(self, event: Received, peer: Peer, message: messages.Hello) -> None:
        worker = self._worker_of(peer, message)
        held = {(int(entry[0]), int(entry[1])): str(entry[2]) for entry in message.held}
        lost: list[messages.Token] = [
            list(token)
            for token, phase in held.items()
            if token not in worker.leases and not (phase == "finished" and token in worker.ended)
        ]
        # While it counts as disconnected nothing is handed to it: what it gives back here may suit
        # another worker, and it must see its welcome before any job.
        for lease in list(worker.leases.values()):
            self._settle_held(lease, held.get(lease.token))
        peer.worker, worker.connection = worker, peer.connection
        self._memory.answer(event.connection, event.request, self._welcome(None, lost))
        for lease in worker.leases.values():
            self._following.worker_returned(self._memory.jobs[lease.number], lease)
        self._leasing.fill(worker)

    def _settle_held(self, lease: Lease, phase: str | None) -> None:
        if phase == "unstarted" or (phase is None and lease.worker.is_supervised):
            # A pool's worker keeps what it started until that is confirmed, so a job it does not hold
            # never reached it: the connection or the broker ended between commit and push.
            self._leasing.never_started(lease, "release")
        elif phase is None:
            reason = "its worker came back without it"
            self._leasing.end(lease, Outcome.RELEASED, op="release", reason=reason)
        else:
            lease.renew(self._memory.now.mono_ms + lease.lease_ms)
            if phase == "finished":
                # Its end is on its way, and may have come about in time.
                lease.limit_ms = max(
                    lease.limit_ms, self._memory.now.mono_ms + self._memory.rules.reconnect_grace_ms
                )
            self._leasing.check_by(lease.limit_ms)

    def _worker_of(self, peer: Peer, message: messages.Hello) -> Worker:
        """The known worker of this identity, or a new one; not connected yet."""
        identity = identity_text(message.identity) or f"{RAW}{self._memory.epoch}/{peer.connection}"
        worker = self._registry.workers.get(identity)
        if worker is None:
            worker = Worker(identity=identity, name=identity, nonce="", pid=peer.pid, ticket=b"")
        elif worker.connection is not None:
            self._memory.effects.append(fx.Close(worker.connection, "the worker said hello anew"))
        worker.connection, worker.back_by_ms = None, 0
        worker.name, worker.is_text = message.name or identity, peer.is_text
        if message.identity:
            worker.pid, worker.nonce = int(message.identity[2]), str(message.identity[4])
        kinds, turns = frozenset(message.kinds), turns_of(message.queues)
        self._registry.renew(worker, bytes(message.ticket), kinds, turns, message.slots, message.prefetch)
        pool = self._registry.pool_of(worker)
        if pool is not None and pool.dead:
            self._liveness.doom(worker)
        return worker

    def pool(self, event: Received, message: work.Pool) -> None:
        """A supervisor takes its place and declares the kinds it serves; or says anew what has changed."""
        peer = self._registry.peers[event.connection]
        if wrong := self._wrong_pool(peer, message):
            self._refuse_pool(event, peer, "bad_message", wrong)
            return
        if full := self._no_room(message):
            self._refuse_pool(event, peer, *full)
            return
        pool = self._registry.pools.get(message.ticket)
        if pool is None:
            pool = self._registry.pools[message.ticket] = Pool(message.ticket, message.name)
        elif pool.connection not in (None, event.connection):
            self._memory.effects.append(fx.Close(pool.connection, "the supervisor said pool anew"))
        pool.name, pool.pid = message.name, int(message.identity[2])
        pool.identity = identity_text(message.identity)
        pool.code, pool.reload = message.code, _reload(message)
        pool.connection, pool.gone_by_ms = event.connection, 0
        peer.pool = pool
        declared = {str(kind["kind"]): _policy(kind) for kind in message.kinds}
        pool.kinds = {kind: self._declare(pool, kind, policy) for kind, policy in declared.items()}
        pool.heartbeat_ms = self._liveness.heartbeat_ms(pool)
        self._memory.answer(event.connection, event.request, self._welcome(pool))
        self._liveness.supervisor_came(pool, frozenset(message.workers))

    def _wrong_pool(self, peer: Peer, message: work.Pool) -> str:
        """What is wrong with a supervisor's introduction; empty if nothing is."""
        if peer.worker is not None or (peer.pool is not None and peer.pool.ticket != message.ticket):
            return "pool: this connection has introduced itself already"
        known = self._registry.pools.get(message.ticket)
        if known is not None and known.identity not in ("", identity_text(message.identity)):
            return "pool: this ticket belongs to another supervisor"
        if known is not None and (known.connection or 0) > peer.connection:
            return "pool: this supervisor has a newer connection"
        for kind in message.kinds:
            if cap_below_base(kind.get("backoff_ms"), kind.get("backoff_cap_ms")):
                return f"pool: kind {kind['kind']}: `backoff_cap_ms` is below `backoff_ms`"
        return ""

    def _refuse_pool(self, event: Received, peer: Peer, code: str, text: str) -> None:
        if peer.pool is not None:
            self._memory.refuse(event.connection, event.request, code, text)
        else:
            self._turn_away(event, text, code)

    def _no_room(self, message: work.Pool) -> tuple[str, str] | None:
        """The code word and what is full, if there is no room for one more supervisor or for its kinds."""
        memory, registry = self._memory, self._registry
        if not registry.has_room_for_pool(message.ticket):
            return "pools_full", f"pool: {limits.POOLS_MAX} supervisors are known, the most there may be"
        kinds = {str(kind["kind"]) for kind in message.kinds}
        if not memory.may_declare(kinds, (pool.kinds for pool in registry.pools.values())):
            return "kinds_full", (
                f"pool: of its {len(kinds)} kinds {len(kinds - memory.kinds.keys())} are new, and {len(memory.kinds)} "
                f"of at most {limits.KINDS_MAX} are known; those that nobody uses are forgotten after a while"
            )
        return None

    def _declare(self, pool: Pool, kind: str, policy: dict[str, Any]) -> Mapping[str, Any]:
        """Make a kind known, and return its policy as it is kept: pools that agree hold it once."""
        known = self._memory.kinds.get(kind)
        if known is not None and known[1] == policy:
            return known[1]
        self._memory.declare_kind(kind, pool.name, policy)
        self._enqueueing.kind_declared(kind)
        return policy

    # --- ends of attempts --------------------------------------------------------------------------------

    def ack(self, event: Received, message: work.Ack) -> None:
        """The attempt succeeded, unless it was already over its time limit."""
        lease = self._lease(event, message.token, "ack")
        if lease is None:
            return
        if lease.kill is not None and lease.kill is Outcome.TIMEOUT:
            # To confirm it would say that the job is done. But the worker has let go of it.
            text = "the attempt was over its time limit before its ack came"
            self._memory.refuse(event.connection, event.request, "lease_lost", text)
            reason, duration_ms = "finished, but only after its time limit", message.duration_ms
            self._leasing.end(
                lease, Outcome.TIMEOUT, reason=reason, duration_ms=duration_ms, output=message.output
            )
        else:
            # The answer is made first: it leaves in front of the next job, after the same commit.
            # Its worker is free as soon as it has been read, and only keeps it until it is confirmed.
            self._memory.effects.append(
                fx.Answer(event.connection, event.request, messages.Done(), patient=True)
            )
            self._leasing.succeed(lease, message.duration_ms, message.result, message.output)

    def nack(self, event: Received, message: work.Nack) -> None:
        """The attempt failed; a kill that was under way says why, else the worker does."""
        lease = self._lease(event, message.token, "nack")
        if lease is None:
            return
        self._memory.answer(event.connection, event.request, messages.Done())
        outcome = Outcome(message.outcome)
        if outcome in (Outcome.TIMEOUT, Outcome.CANCELLED) and lease.kill is not None:
            outcome = lease.kill
        elif outcome is Outcome.CANCELLED:
            # Only a person withdraws a job; a handler that behaves as if one had is a failed attempt.
            outcome = Outcome.ERROR
        self._leasing.end(
            lease,
            outcome,
            op="nack",
            reason=message.reason,
            report=message.report,
            after_ms=message.after_ms,
            duration_ms=message.duration_ms,
            exited=message,
            output=message.output,
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

    def progress(self, event: Received, message: work.Progress) -> None:
        """How far an attempt is. Nobody waits for an answer; one that is over is no news."""
        worker = self._registry.peers[event.connection].worker
        lease = self._leasing.leases.get((message.token[0], message.token[1]))
        if worker is not None and lease is not None and lease.worker is worker:
            lease.progress, lease.progress_ms = message, self._memory.now.mono_ms

    def output(self, event: Received, message: work.Output) -> None:
        """A chunk of what an attempt says, for those who follow it."""
        lease = self._lease(event, message.token, "output")
        if lease is not None:
            self._following.output(event, message, self._memory.jobs[lease.number])

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


def _reload(message: work.Pool) -> dict[str, Any] | None:
    if message.reload_state is None:
        return None
    return {
        "state": message.reload_state,
        "mono_ms": message.reload_mono_ms,
        "error": message.reload_error or None,
    }


def _policy(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kind[name] for name in KIND_POLICY if kind.get(name) is not None}
