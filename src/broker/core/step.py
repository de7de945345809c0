"""The core as one object: an event in, all its effects out; then wait once, for event or deadline.

    effects = core.step(event, now)        # any number of times
    changes = core.take_changes()          # closes a batch: one transaction
    wait at most core.next_deadline(now)   # then step(TimePassed())

`now` never goes back on its monotonic and boot-time parts. Everything random comes from `chance`,
a function that gives floats in [0, 1).

Finished jobs are on disk only. Before `step(Received(...))` the driver asks `wants`, looks up what
it names, and puts the answers into the event. A look-up is a view of the past: if a job left memory
after it was asked for (`departed`), the event comes back as `LookAgain` and is looked up anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from ...proto import limits, messages, work
from ...proto.model import Outcome, State
from . import effects as fx
from . import events as ev
from . import figures
from .enqueueing import Enqueueing
from .following import Following
from .job import Job
from .leasing import Leasing
from .liveness import Liveness
from .memory import Memory
from .operating import Operating, kept_until
from .prefetch import Prefetch
from .reporting import Reporting
from .rules import Rules
from .waiting import Waiting
from .workers import Pool, Registry, Worker
from .working import Working

_WITH_LOOK_UPS = frozenset(
    {
        messages.Enqueue,
        messages.Show,
        messages.Follow,
        messages.Wait,
        messages.Why,
        messages.Cancel,
        messages.Kick,
        messages.Drop,
    }
)


# Not `Kick | Drop`, which makes a new union each time it is come by.
_OF_MANY = (messages.Kick, messages.Drop)


@attrs.frozen
class Want:
    """One look-up: a job by `id`, or the up to `limit` oldest dead jobs of `queue`."""

    id: str | None = None
    queue: str | None = None
    limit: int = 0
    history: bool = False
    payload: bool = False


class Core:
    """The rules of the queue over its state. See the module for how it is driven."""

    def __init__(self, rules: Rules, *, epoch: int, now: ev.Now, chance: Callable[[], float]) -> None:
        self._memory = memory = Memory(rules, epoch, now)
        self._nothing_wanted_of: tuple[messages.Message | None, int] = (None, 0)
        self._registry = registry = Registry()
        self._waiting = waiting = Waiting(memory)
        self._following = following = Following(memory)
        self._prefetch = prefetch = Prefetch(memory, registry)
        self._leasing = leasing = Leasing(memory, registry, waiting, following, prefetch, chance)
        self._liveness = liveness = Liveness(memory, registry, leasing, prefetch)
        self._enqueueing = enqueueing = Enqueueing(memory, leasing, waiting)
        self._working = working = Working(memory, registry, leasing, liveness, enqueueing, following)
        self._operating = operating = Operating(memory, leasing, liveness, waiting)
        self._reporting = reporting = Reporting(memory, registry, leasing, waiting)
        self._messages: dict[type[Any], Callable[[ev.Received, Any], None]] = {
            messages.Enqueue: enqueueing.enqueue,
            messages.Hello: working.hello,
            messages.Cancel: operating.cancel,
            messages.Kick: operating.kick,
            messages.Drop: operating.drop,
            messages.Pause: operating.pause,
            messages.Resume: operating.resume,
            messages.Drain: operating.drain,
            messages.Show: reporting.show,
            messages.Why: reporting.why,
            messages.Wait: reporting.wait,
            messages.Follow: self._follow,
            messages.Status: self._status,
            work.Ack: working.ack,
            work.Nack: working.nack,
            work.Release: working.release,
            work.Progress: working.progress,
            work.Output: working.output,
            work.Heartbeat: self._heartbeat,
            work.Pool: working.pool,
            work.Exited: self._exited,
            work.Recalled: self._recalled,
        }
        self._events: dict[type[Any], Callable[[Any], None]] = {
            ev.Received: self._received,
            ev.TimePassed: self._time_passed,
            ev.Connected: self._connected,
            ev.Disconnected: self._disconnected,
            ev.PeerExited: self._peer_exited,
            ev.OwnerGone: self._owner_gone,
            ev.Stalled: self._stalled,
            ev.HeldUp: self._held_up,
            ev.StorageChanged: self._storage_changed,
            ev.PruneFound: self._prune_found,
            ev.IdsForgotten: self._ids_forgotten,
            ev.StopRequested: self._stop_requested,
        }

    # --- being driven -----------------------------------------------------------------------------------

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        """Handle one event; the effects leave after the commit of the batch it belongs to."""
        memory = self._memory
        assert now.mono_ms >= memory.now.mono_ms and now.boot_ms >= memory.now.boot_ms, "time went back"
        memory.now = now
        memory.steps += 1
        memory.effects = []
        self._events[type(event)](event)
        if self._waiting.somebody_drains and not self._leasing.leases:
            self._waiting.drained(0)
        return memory.effects

    def next_deadline(self, now: ev.Now) -> int:
        """Milliseconds after which `step(TimePassed())` is due; never more than WALL_RECHECK_MS."""
        memory = self._memory
        waits = [limits.WALL_RECHECK_MS]
        for instant, clock in (
            (memory.due.next_instant(), now.boot_ms),
            (memory.expiry.next_instant(), now.boot_ms),
            (memory.due_by_wall.next_instant(), now.wall_ms),
            (self._leasing.check_ms, now.mono_ms),
            (self._prefetch.check_ms, now.mono_ms),
            (self._waiting.check_ms, now.mono_ms),
            (self._following.check_ms, now.mono_ms),
        ):
            if instant is not None:
                waits.append(instant - clock)
        return max(min(waits), 0)

    def take_changes(self) -> fx.Changes:
        """Everything since the last call, for one transaction."""
        return self._memory.take_changes()

    @property
    def steps(self) -> int:
        """How many events were stepped: the `asked_at` of a look-up made now."""
        return self._memory.steps

    def status(self) -> dict[str, Any]:
        """The queue as a whole, as the op `status` shows it."""
        return self._reporting.status()

    def take_figures(self, now: ev.Now) -> figures.Minute:
        """How each queue stands, and what was counted since the last call. For the log, once a minute."""
        return figures.take(self._memory, now.boot_ms)

    def statistics(self) -> dict[str, int]:
        """How many of everything memory holds: whatever is at rest must not stay."""
        memory, registry = self._memory, self._registry
        return {
            "jobs": len(memory.jobs),
            "queues": len(memory.queues),
            "kinds": len(memory.kinds),
            "unresolved_kinds": len(memory.unresolved),
            "departed_ids": len(memory.departed),
            "fresh_ids": len(memory.fresh),
            "timers": len(memory.due) + len(memory.due_by_wall) + len(memory.expiry),
            "leases": len(self._leasing.leases),
            "waiting": len(self._waiting),
            "followed": len(self._following),
            "peers": len(registry.peers),
            "workers": len(registry.workers),
            "pools": len(registry.pools),
            "idle_workers": len(registry.idle()),
            "ids_kept": memory.ids_kept,
        }

    def trim_departed(self, asked_at: int) -> None:
        """No look-up asked before that step is outstanding any more."""
        departed = self._memory.departed
        over: list[str] = []
        for id, step in departed.items():
            if step > asked_at:
                break
            over.append(id)
        for id in over:
            del departed[id]

    def wants(self, message: messages.Message) -> Sequence[Want]:
        """What must be looked up before this message is stepped."""
        if type(message) not in _WITH_LOOK_UPS:
            return ()
        memory = self._memory
        if isinstance(message, messages.Enqueue):
            if message.id in memory.by_id or (
                message.fresh and memory.fresh.believes(message.id, memory.now)
            ):
                self._nothing_wanted_of = (message, memory.steps)
                return ()
            return (Want(message.id),)
        if isinstance(message, messages.Show):
            return (Want(message.id, history=True, payload=message.payload),)
        if isinstance(message, messages.Wait):
            return () if message.id in memory.by_id else (Want(message.id, history=True),)
        if isinstance(message, messages.Follow):
            is_known = message.awaited or self._following.is_over(message.id)
            return () if is_known or message.id in memory.by_id else (Want(message.id),)
        if isinstance(message, messages.Why | messages.Cancel):
            return () if message.id in memory.by_id else (Want(message.id),)
        if isinstance(message, _OF_MANY):
            if message.id is not None:
                return () if message.id in memory.by_id else (Want(message.id),)
            return () if message.queue is None else (Want(queue=message.queue, limit=message.limit),)
        return ()

    # --- messages ------------------------------------------------------------------------------------------

    def _received(self, event: ev.Received) -> None:
        message = event.message
        if event.connection not in self._registry.peers:
            return
        kind = type(message)
        if kind in _WITH_LOOK_UPS:
            if self._is_out_of_date(event):
                self._memory.effects.append(fx.LookAgain(event))
                return
            if isinstance(message, _OF_MANY) and ((message.id is None) == (message.queue is None)):
                text = "say which: either `id` or `queue`"
                self._memory.refuse(event.connection, event.request, "bad_message", text)
                return
        caller = (event.connection, event.request)
        is_open = self._waiting.is_waiting(caller) or self._following.is_waiting(caller)
        if is_open and not event.parked_turn:
            text = f"request id {event.request} is in use by a request that waits"
            self._memory.refuse(event.connection, event.request, "bad_message", text)
            return
        self._messages[kind](event, message)

    def _is_out_of_date(self, event: ev.Received) -> bool:
        message, asked_at = self._nothing_wanted_of
        if event.message is message and asked_at == self._memory.steps - 1:
            # `wants` was asked for this very step, and nothing has happened in between.
            return False
        found = event.found
        for want in self.wants(event.message):
            if want.id is not None and want.id not in found:
                return True
        if not found:
            return False
        departed = self._memory.departed
        return any(departed.get(id, 0) > event.asked_at for id in found)

    def _status(self, event: ev.Received, _: messages.Status) -> None:
        report = messages.StatusReport(self.status())
        self._memory.answer(event.connection, event.request, report)

    def _follow(self, event: ev.Received, message: messages.Follow) -> None:
        job = self._memory.by_id.get(message.id)
        found = event.found.get(message.id)
        finished = None if found is None or job is not None else found.job
        if job is None and finished is None and not (message.awaited or self._following.is_over(message.id)):
            self._reporting.not_found(event, message.id)
        elif self._waiting.may_wait(event):
            if job is not None:
                self._following.revived(message.id)
            lease = self._leasing.leases.get(job.token) if job is not None else None
            self._following.follow(event, message, lease, "" if finished is None else str(finished.state))

    def _heartbeat(self, event: ev.Received, message: work.Heartbeat) -> None:
        self._liveness.heartbeat(self._registry.peers[event.connection], event.request, message)

    def _exited(self, event: ev.Received, message: work.Exited) -> None:
        self._liveness.exited(self._registry.peers[event.connection], event.request, message)

    def _recalled(self, event: ev.Received, message: work.Recalled) -> None:
        self._liveness.recalled(self._registry.peers[event.connection], event.request, message)

    # --- other events -----------------------------------------------------------------------------------

    def _time_passed(self, _: ev.TimePassed) -> None:
        self._liveness.time_passed()
        self._enqueueing.time_passed()
        self._memory.fresh.time_passed(self._memory.now)
        self._waiting.time_passed(len(self._leasing.leases))
        self._following.time_passed()

    def _connected(self, event: ev.Connected) -> None:
        self._liveness.connected(event.connection, event.uid, event.pid, event.is_text)

    def _disconnected(self, event: ev.Disconnected) -> None:
        self._waiting.connection_ended(event.connection)
        for id in self._following.connection_ended(event.connection):
            if (job := self._memory.by_id.get(id)) is not None:
                self._operating.withdraw(job)
        self._liveness.disconnected(event.connection)

    def _peer_exited(self, event: ev.PeerExited) -> None:
        self._liveness.peer_exited(event.connection)

    def _owner_gone(self, event: ev.OwnerGone) -> None:
        worker = self._registry.workers.get(event.owner)
        if worker is not None and worker.connection is None and not worker.dead:
            self._liveness.worker_died(worker, of_another_boot=event.of_another_boot)
        for pool in list(self._registry.pools.values()):
            if pool.identity == event.owner and pool.connection is None and not pool.dead:
                self._liveness.pool_died(pool, of_another_boot=event.of_another_boot)

    def _stalled(self, event: ev.Stalled) -> None:
        self._memory.log("broker_stalled", stalled_ms=event.stalled_ms)
        self._liveness.stalled(event.stalled_ms)

    def _held_up(self, event: ev.HeldUp) -> None:
        self._liveness.held_up(event.pushes)

    def _storage_changed(self, event: ev.StorageChanged) -> None:
        self._memory.storage_full = event.full

    def _prune_found(self, event: ev.PruneFound) -> None:
        memory, rules = self._memory, self._memory.rules
        for number, id, body_hash, by_caller, queue, state, created_boot_ms in event.rows:
            if number in memory.jobs or memory.departed.get(id, 0) > event.asked_at:
                # Kicked, or touched otherwise, since the journal looked.
                continue
            kept_ms = rules.id_kept_caller_ms if by_caller else rules.id_kept_library_ms
            until_ms = kept_until(created_boot_ms, kept_ms, memory.now.boot_ms)
            memory.delete(number, id, body_hash, queue, State(state), until_ms)

    def _ids_forgotten(self, event: ev.IdsForgotten) -> None:
        self._memory.ids_kept -= event.count

    def _stop_requested(self, _: ev.StopRequested) -> None:
        self._memory.stopping = True
        self._waiting.stop()
        self._following.stop()

    # --- recovery -----------------------------------------------------------------------------------------

    def restore(
        self,
        *,
        jobs: Iterable[Job],
        sequence: int,
        finished_counts: Mapping[tuple[str, str], int],
        kinds: Mapping[str, tuple[str, dict[str, Any]]],
        paused: Iterable[str],
        ids_kept: int,
        ended: Iterable[tuple[str, tuple[int, int], str]],
    ) -> None:
        """Take in what the journal holds, before the first step.

        `jobs` are the live ones, their boot-clock fields already on this boot's clock. `ended` are
        the tokens that ended last, each (worker identity, token, op), by which a worker's repeat
        is recognised.
        """
        memory = self._memory
        memory.restore_sequence(sequence)
        memory.ids_kept = ids_kept
        memory.kinds = {kind: (pool, policy) for kind, (pool, policy) in kinds.items()}
        for name in paused:
            memory.restore_paused(name)
        for (queue, state), count in finished_counts.items():
            if count:
                memory.queue(queue).counts[State(state)] = count
        for job in jobs:
            # Since when it is ready is not written down; it is not longer than since it was created.
            memory.admit(job, job.created_boot_ms)
            if job.state is State.LEASED:
                self._restore_lease(job)
        for identity, token, op in ended:
            worker = self._registry.workers.get(identity)
            if worker is None:
                worker = self._absent(identity, b"")
            worker.remember_ended(token, op)

    def _restore_lease(self, job: Job) -> None:
        worker = self._absent_worker(job)
        lease = self._leasing.add(job, worker, self._memory.policy(job))
        lease.renew(worker.back_by_ms)
        if job.cancelling:
            self._liveness.kill(lease, Outcome.CANCELLED)

    def _absent_worker(self, job: Job) -> Worker:
        """The holder of a recovered lease, who has its grace to come back."""
        worker = self._registry.workers.get(job.worker)
        if worker is None:
            worker = self._absent(job.worker, job.ticket)
        if job.ticket and job.ticket not in self._registry.pools:
            gone_by_ms = self._memory.now.mono_ms + self._memory.rules.supervisor_grace_ms
            self._registry.pools[job.ticket] = Pool(
                job.ticket, "", identity=job.supervisor, gone_by_ms=gone_by_ms
            )
            self._leasing.check_by(gone_by_ms)
        return worker

    def _absent(self, identity: str, ticket: bytes) -> Worker:
        parts = identity.split("/")
        pid = int(parts[2]) if len(parts) == 5 else 0
        back_by_ms = self._memory.now.mono_ms + self._memory.rules.reconnect_grace_ms
        worker = Worker(identity, identity, parts[-1], pid, ticket, back_by_ms=back_by_ms)
        self._registry.add_worker(worker)
        self._leasing.check_by(back_by_ms)
        return worker

    def is_missed(self, connection: int) -> bool:
        """Whether the end of that connection would leave something open, and so is worth telling of."""
        return self._registry.is_missed(connection)

    def absent_owners(self) -> list[str]:
        """Identities of lease holders, and of their supervisors, that are neither connected nor known dead.

        The shell watches them.
        """
        registry = self._registry
        workers = [
            worker.identity
            for worker in registry.workers.values()
            if worker.leases and worker.connection is None and not worker.dead
        ]
        pools = [
            pool.identity
            for pool in registry.pools.values()
            if pool.identity and pool.connection is None and not pool.dead
        ]
        return workers + pools
