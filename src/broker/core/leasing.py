"""Handing jobs out and taking their ends in: everything a token may do.

A lease is made in the same step in which its job is chosen, is on disk before the job leaves the
broker, and ends exactly once. Which worker gets a job: the one idle longest among those that know
its kind. Which job a worker gets: queues take turns, within a queue the best of the worker's kinds. (A
pool may have turns of its own, see `turns`.)

An idle worker means that no job it could run is ready; so a job that becomes ready needs to look
only at idle workers, and a worker that becomes free only at ready jobs.
"""

from collections.abc import Callable

from ...proto import limits, work
from ...proto.model import Outcome, State
from . import effects as fx
from . import notices
from .following import Following
from .job import Job
from .lifecycle import Command
from .memory import Memory
from .prefetch import Prefetch
from .queues import Queue
from .retry import Counters, Verdict, decide
from .rules import Policy
from .turns import Turns
from .waiting import Waiting
from .workers import Key, Lease, Registry, Worker

# Members by names of their own: in Python 3.11 looking one up in its class costs more than a call.
_ACKED, _GRANTED = Command.ACKED, Command.GRANTED
_OK = Outcome.OK.value
_DEAD = State.DEAD

_UNFINISHED = frozenset({Outcome.CRASH, Outcome.LOST, Outcome.RELEASED, Outcome.SHUTDOWN})
"""After one of these nobody knows yet whether a suspect can finish."""


class Leasing:
    """Live leases by token, and the moves that make and end them."""

    def __init__(
        self,
        memory: Memory,
        registry: Registry,
        waiting: Waiting,
        following: Following,
        prefetch: Prefetch,
        chance: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._prefetch = prefetch
        self._registry = registry
        self._waiting = waiting
        self._following = following
        self._chance = chance
        self._counter = 0
        self.leases: dict[tuple[int, int], Lease] = {}
        self.check_ms: int | None = None
        """The earliest instant at which any lease may need attention; never later than the truth."""

    # --- handing out -------------------------------------------------------------------------------

    @property
    def is_held_back(self) -> bool:
        """Nothing at all is handed out."""
        memory = self._memory
        return memory.paused_all or memory.draining or memory.stopping

    def offer(self, job: Job) -> None:
        """A job became ready: hand it to an idle worker, if there is one and nothing holds it back."""
        if job.expires_boot_ms and self.expire_if_over(job):
            return
        registry = self._registry
        find = registry.empty_for if job.suspect else registry.idle_for
        worker = find(job.kind, job.queue)
        if worker is None or self.is_held_back or self._memory.queues[job.queue].paused:
            return
        self._grant(job, worker)
        self._registry.refresh(worker)

    def fill(self, worker: Worker) -> None:
        """Hand a worker as many jobs as it has free slots; it is idle if some are left."""
        if worker.clears and not worker.leases:
            worker.clears = False
        if not self.is_held_back:
            while worker.free_slots > 0:
                job = self._next_for(worker)
                if job is None:
                    break
                if not self.expire_if_over(job):
                    self._grant(job, worker)
            if worker.prefetch:
                self._send_ahead(worker)
        self._registry.refresh(worker)

    def _send_ahead(self, worker: Worker) -> None:
        room = self._prefetch.room(worker)
        sent = False
        for _ in range(room):
            found = self._next_ahead(worker)
            if found is None:
                break
            job, queue = found
            if not self.expire_if_over(job):
                self._take_turn(queue)
                self._grant(job, worker)
                sent = True
        if sent:
            self._prefetch.sent(worker)

    def _next_ahead(self, worker: Worker) -> tuple[Job, Queue] | None:
        """What the worker would get next, if that is quick and there is enough of it for all."""
        if worker.turns is not None:
            return None
        pool = self._registry.pool_of(worker)
        for queue in self._memory.active.values():
            if queue.has_suspects:
                return None
            job = None if queue.paused else queue.best(worker.kinds)
            if job is not None:
                may_go = self._prefetch.is_enough(queue) and self._prefetch.is_quick(pool, job.kind)
                return (job, queue) if may_go else None
        return None

    def _take_turn(self, queue: Queue) -> None:
        active = self._memory.active
        if len(active) > 1:
            del active[queue.name]
            active[queue.name] = queue

    def fill_all(self) -> None:
        """Something that held jobs back is gone."""
        for worker in self._registry.idle():
            self.fill(worker)

    def _next_for(self, worker: Worker) -> Job | None:
        if worker.turns is not None:
            return self._next_by_turns(worker, worker.turns)
        active = self._memory.active
        for queue in active.values():
            job = self._best(queue, worker)
            if worker.clears:
                return None
            if job is not None:
                self._take_turn(queue)
                return job
        return None

    def _next_by_turns(self, worker: Worker, turns: Turns) -> Job | None:
        found: dict[str, Job] = {}
        for name in turns.weights:
            queue = self._memory.active.get(name)
            job = None if queue is None else self._best(queue, worker)
            if worker.clears:
                return None
            if job is not None:
                found[name] = job
                if turns.is_strict:
                    return job
        return found[turns.choose(found)] if found else None

    def _best(self, queue: Queue, worker: Worker) -> Job | None:
        """What a worker would get of one queue. It may have to clear for it, and gets nothing then."""
        if queue.paused:
            return None
        job = queue.best(worker.kinds)
        return self._or_suspect(job, queue, worker) if queue.has_suspects else job

    def _or_suspect(self, best: Job | None, queue: Queue, worker: Worker) -> Job | None:
        """The best job of a queue, suspects included, for a worker that may have to clear for one.

        One worker clears, so that the others go on with what is behind the suspect.
        """
        suspect = queue.best_suspect(worker.kinds)
        if suspect is None or (best is not None and _order(best) < _order(suspect)):
            return best
        if not worker.leases:
            return suspect
        worker.clears = not self._registry.somebody_clears_for(suspect.kind, suspect.queue)
        return best

    def _stop_clearing(self) -> None:
        """A suspect waits no longer, so perhaps nobody has to clear; who still has to finds it out."""
        for worker in self._registry.workers.values():
            if worker.clears:
                worker.clears = False
                self.fill(worker)

    def _grant(self, job: Job, worker: Worker) -> None:
        memory = self._memory
        assert worker.connection is not None
        self._counter += 1
        memory.move(job, _GRANTED)
        job.attempt += 1
        job.token_epoch, job.token_counter = memory.epoch, self._counter
        pool = self._registry.pool_of(worker)
        job.worker, job.ticket = worker.identity, worker.ticket
        job.supervisor = "" if pool is None else pool.identity
        job.leased_at_ms = memory.now.wall_ms
        policy = memory.policy(job)
        self.add(job, worker, policy, waits=len(worker.leases) >= worker.slots)
        memory.effects.append(
            fx.Push(worker.connection, _message(job, policy, self._following.policy_for(job)))
        )
        if job.suspect:
            self._stop_clearing()

    def add(self, job: Job, worker: Worker, policy: Policy, *, waits: bool = False) -> Lease:
        """A live lease for a leased job. Deadlines start now, also when it was recovered from disk.

        The time limit of one that `waits` starts when it no longer does.
        """
        token = (job.token_epoch, job.token_counter)
        lease = Lease(token, job.number, worker, policy.lease_ms, waits=waits)
        self.begin(lease, policy.time_limit_ms)
        self.leases[token] = lease
        worker.leases[token] = lease
        worker.runs_alone = job.suspect
        return lease

    def begin(self, lease: Lease, time_limit_ms: int) -> None:
        """Its time counts from now."""
        mono, first_ms = self._memory.now.mono_ms, lease.lease_ms
        pool = self._registry.pool_of(lease.worker)
        if pool is not None:
            # A lease shorter than the rhythm its supervisor was told begins with two full beats of it.
            first_ms = max(first_ms, 2 * pool.heartbeat_ms)
        lease.renew(mono + first_ms)
        lease.limit_ms = mono + time_limit_ms
        self.check_by(lease.deadline_ms)
        self.check_by(lease.limit_ms)
        if not lease.waits:
            lease.worker.first_since_ms, lease.worker.is_slow = mono, False

    def _begin_next(self, worker: Worker) -> None:
        """The job before it has ended, so the first of those that wait runs now."""
        first = next(iter(worker.leases.values()), None)
        if first is not None and first.waits:
            first.waits = False
            self.begin(first, self._memory.policy(self._memory.jobs[first.number]).time_limit_ms)
            if first.kill is not None:
                # Nobody has been told yet.
                self.check_by(self._memory.now.mono_ms)

    def check_by(self, mono_ms: int) -> None:
        """Look at the leases at that instant at the latest."""
        if self.check_ms is None or mono_ms < self.check_ms:
            self.check_ms = mono_ms

    # --- taking ends in ------------------------------------------------------------------------------

    def succeed(
        self, lease: Lease, duration_ms: int, result: bytes | None, output: str | None = None
    ) -> None:
        """The attempt finished its job."""
        job = self._remove(lease, "ack")
        self._memory.write_outcome(self._row(job, _OK, "", "", duration_ms, None, result, output))
        if lease.worker.prefetch:
            self._prefetch.attempt_ended(lease.worker, job.kind, duration_ms)
        job.releases, job.outcome, job.suspect = 0, _OK, False
        _clear_holder(job)
        self.finish(job, _ACKED, "", result)
        self.fill(lease.worker)

    def end(
        self,
        lease: Lease,
        outcome: Outcome,
        *,
        op: str = "",
        reason: str = "",
        report: str = "",
        after_ms: int | None = None,
        duration_ms: int = 0,
        exited: work.Exited | work.Nack | None = None,
        output: str | None = None,
    ) -> None:
        """End an attempt that did not succeed, whatever ended it, and move its job on by the rules of `retry`."""
        memory = self._memory
        job = self._remove(lease, op)
        if lease.worker.prefetch:
            self._prefetch.attempt_ended(lease.worker, job.kind, None)
        if job.cancelling:
            outcome = Outcome.CANCELLED
        memory.write_outcome(self._row(job, outcome.value, reason, report, duration_ms, exited, None, output))
        job.suspect = job.suspect and outcome in _UNFINISHED
        policy = memory.policy(job)
        before = Counters(job.charged, job.crashes, job.releases)
        chance = self._chance()
        verdict = decide(outcome, before, policy, reason=reason, after_ms=after_ms, chance=chance)
        job.charged, job.crashes, job.releases = verdict.counters
        job.outcome = outcome.value
        _clear_holder(job)
        self._carry_out(job, verdict)
        self.fill(lease.worker)

    def suspect(self, lease: Lease, reason: str, exited: work.Exited) -> None:
        """Its worker died while it ran several jobs: nobody knows which did it, so nobody is charged.

        Alone, the one that did it will show it. (A job that is being cancelled never comes here: there
        is a kill for it, and that is its end.)
        """
        job = self._remove(lease, "")
        crash = Outcome.CRASH.value
        self._memory.write_outcome(self._row(job, crash, reason, "", 0, exited))
        job.suspect, job.outcome, job.reason = True, crash, shortened(f"{crash}: {reason}")
        _clear_holder(job)
        self._memory.move(job, Command.RETURNED)
        self._memory.count_retry(job.queue)
        self.offer(job)
        self.fill(lease.worker)

    def never_started(self, lease: Lease, op: str = "") -> None:
        """The job was handed out but its handler did not run: no delivery, and nothing is counted."""
        job = self._remove(lease, op)
        job.attempt -= 1
        _clear_holder(job)
        if job.cancelling:
            self.finish(job, Command.CANCELLED, "cancelled before it started")
        else:
            self._memory.move(job, Command.RETURNED)
            self.offer(job)
        self.fill(lease.worker)

    def taken_back(self, worker: Worker, through: Key, started: Key | None) -> None:
        """The supervisor's word: nothing up to `through` begins any more but what has begun by `started`."""
        for lease in list(worker.leases.values()):
            if lease.token <= through and (started is None or lease.token > started):
                self.never_started(lease)

    def _remove(self, lease: Lease, op: str) -> Job:
        # Its worker is not idle yet, and will be only when what the end means is carried out: a job
        # that returns must not pass by more urgent ones that wait for this very worker.
        del self.leases[lease.token]
        del lease.worker.leases[lease.token]
        lease.worker.runs_alone = False
        if lease.worker.prefetch:
            self._begin_next(lease.worker)
        if op:
            lease.worker.remember_ended(lease.token, op)
        job = self._memory.jobs[lease.number]
        self._following.attempt_ended(job)
        return job

    def _carry_out(self, job: Job, verdict: Verdict) -> None:
        memory = self._memory
        if verdict.is_retry:
            memory.count_retry(job.queue)
        if verdict.command is Command.FAILED:
            job.delay_ms = verdict.delay_ms
            job.due_boot_ms = memory.now.boot_ms + verdict.delay_ms
            job.reason = shortened(verdict.reason)
            memory.move(job, Command.FAILED)
        elif verdict.command is Command.RETURNED:
            job.reason = shortened(verdict.reason)
            memory.move(job, Command.RETURNED)
            self.offer(job)
        else:
            self.finish(job, verdict.command, verdict.reason)

    def finish(self, job: Job, command: Command, reason: str, result: bytes | None = None) -> None:
        """Move a job to a final state, and tell those who wait for it or for its room."""
        memory, now = self._memory, self._memory.now
        job.reason = shortened(reason)
        job.cancelling = False
        job.finished_at_ms, job.finished_boot_ms = now.wall_ms, now.boot_ms
        memory.move(job, command)
        self._waiting.job_finished(job, result)
        self._following.job_finished(job)
        if job.state is _DEAD:
            self.tell_of_death(job)
        self._waiting.room_made(job.queue)
        if job.suspect:
            self._stop_clearing()

    def tell_of_death(self, job: Job) -> None:
        """A job became dead: log it, and hand out the notice of it, if its kind wants one."""
        self._memory.log(
            "job_dead",
            kind=job.kind,
            id=job.id,
            queue=job.queue,
            attempt=job.attempt,
            outcome=job.outcome or "none",
            reason=job.reason,
        )
        kind = notices.dead_kind(self._memory, job)
        if kind:
            self.offer(notices.make(self._memory, job, kind, self._chance))

    def expire_if_over(self, job: Job) -> bool:
        """A waiting job whose expiry has passed becomes dead; whether that was so.

        Asked by timer, and again at each hand-out: the timer may be a moment late.
        """
        if not job.expires_boot_ms or job.expires_boot_ms > self._memory.now.boot_ms:
            return False
        what = f"attempt {job.attempt + 1} did not start" if job.attempt else "not started"
        self.finish(job, Command.EXPIRED, f"expired: {what} within {job.expires_ms} ms")
        return True

    def _row(
        self,
        job: Job,
        outcome: str,
        reason: str,
        report: str,
        duration_ms: int,
        exited: work.Exited | work.Nack | None,
        result: bytes | None = None,
        output: str | None = None,
    ) -> fx.OutcomeRow:
        now = self._memory.now
        if exited is None:
            usage: tuple[int | None, int | None, int, int] = (None, None, 0, 0)
        else:
            usage = (exited.signal, exited.status, exited.memory_peak_bytes, exited.cpu_ms)
        signal, status, memory_peak_bytes, cpu_ms = usage
        return (
            job.number,
            job.attempt,
            outcome,
            reason,
            report,
            job.token_epoch,
            job.token_counter,
            job.worker,
            job.leased_at_ms,
            now.wall_ms,
            duration_ms or max(now.wall_ms - job.leased_at_ms, 0),
            signal,
            status,
            memory_peak_bytes,
            cpu_ms,
            result,
            output,
        )


def _order(job: Job) -> tuple[int, int]:
    return job.priority, job.position


def _clear_holder(job: Job) -> None:
    job.worker, job.ticket, job.supervisor, job.leased_at_ms = "", b"", "", 0


def _message(job: Job, policy: Policy, follow: str | None) -> work.Job:
    return work.Job(
        [job.token_epoch, job.token_counter],
        job.id,
        job.number,
        job.kind,
        job.queue,
        job.attempt,
        b"",
        policy.time_limit_ms,
        policy.lease_ms,
        job.created_at_ms,
        job.headers,
        follow,
    )


def shortened(reason: str) -> str:
    """A reason of at most `REASON_BYTES_MAX` bytes: what the core says before a peer's words comes on top."""
    if len(reason) * 4 <= limits.REASON_BYTES_MAX:
        return reason
    return reason.encode()[: limits.REASON_BYTES_MAX].decode(errors="ignore")
