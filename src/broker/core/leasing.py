"""Handing jobs out and taking their ends in: everything a token may do.

A lease is made in the same step in which its job is chosen, is on disk before the job leaves the
broker, and ends exactly once. Which worker gets a job: the one idle longest among those that know
its kind. Which job a worker gets: queues take turns, within a queue the best of the worker's kinds.

An idle worker means that no job it could run is ready; so a job that becomes ready needs to look
only at idle workers, and a worker that becomes free only at ready jobs.
"""

from collections.abc import Callable

from ...proto import work
from ...proto.model import Outcome, State
from . import effects as fx
from .job import Job
from .lifecycle import Command
from .memory import Memory
from .retry import Counters, Limits, Verdict, decide
from .waiting import Waiting
from .workers import Lease, Registry, Worker


class Leasing:
    """Live leases by token, and the moves that make and end them."""

    def __init__(
        self, memory: Memory, registry: Registry, waiting: Waiting, chance: Callable[[], float]
    ) -> None:
        self._memory = memory
        self._registry = registry
        self._waiting = waiting
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
        if self.is_held_back or self._memory.queues[job.queue].paused:
            return
        worker = self._registry.idle_for(job.kind)
        if worker is not None:
            self._grant(job, worker)

    def fill(self, worker: Worker) -> None:
        """Hand a worker as many jobs as it has free slots."""
        while worker.free_slots > 0 and not self.is_held_back:
            job = self._next_for(worker)
            if job is None:
                return
            self._grant(job, worker)

    def fill_all(self) -> None:
        """Something that held jobs back is gone."""
        for worker in self._registry.idle():
            self.fill(worker)

    def _next_for(self, worker: Worker) -> Job | None:
        active = self._memory.active
        for queue in active.values():
            job = None if queue.paused else queue.best(worker.kinds)
            if job is not None:
                # This queue has had its turn.
                del active[queue.name]
                active[queue.name] = queue
                return job
        return None

    def _grant(self, job: Job, worker: Worker) -> None:
        memory, now = self._memory, self._memory.now
        self._counter += 1
        memory.move(job, Command.GRANTED)
        job.attempt += 1
        job.token_epoch, job.token_counter = memory.epoch, self._counter
        job.worker, job.ticket = worker.identity, worker.ticket
        job.leased_at_ms = now.wall_ms
        lease = self.add(job, worker)
        assert worker.connection is not None
        memory.effects.append(fx.Push(worker.connection, self._message(job, lease)))

    def add(self, job: Job, worker: Worker) -> Lease:
        """A live lease for a leased job. Deadlines start now, also when it was recovered from disk."""
        memory, mono = self._memory, self._memory.now.mono_ms
        lease_ms = memory.policy(job, "lease_ms")
        pool = self._registry.pool_of(worker)
        # A lease shorter than the rhythm its supervisor was told begins with one full beat of it.
        first_ms = lease_ms if pool is None else max(lease_ms, 2 * pool.heartbeat_ms)
        lease = Lease(
            token=job.token,
            number=job.number,
            worker=worker,
            lease_ms=lease_ms,
            deadline_ms=mono + first_ms,
            limit_ms=mono + memory.policy(job, "time_limit_ms"),
        )
        self.leases[lease.token] = lease
        worker.leases[lease.token] = lease
        self._registry.refresh(worker)
        self.check_by(min(lease.deadline_ms, lease.limit_ms))
        return lease

    def check_by(self, mono_ms: int) -> None:
        """Look at the leases at that instant at the latest."""
        if self.check_ms is None or mono_ms < self.check_ms:
            self.check_ms = mono_ms

    def _message(self, job: Job, lease: Lease) -> work.Job:
        return work.Job(
            token=list(lease.token),
            id=job.id,
            number=job.number,
            kind=job.kind,
            queue=job.queue,
            attempt=job.attempt,
            payload=b"",
            time_limit_ms=self._memory.policy(job, "time_limit_ms"),
            lease_ms=lease.lease_ms,
            enqueued_at_ms=job.created_at_ms,
            headers=job.headers,
        )

    # --- taking ends in ------------------------------------------------------------------------------

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
        result: bytes | None = None,
        exited: work.Exited | None = None,
    ) -> None:
        """End an attempt, whatever ended it, and move its job on by the rules of `retry`."""
        memory = self._memory
        job = memory.jobs[lease.number]
        self._remove(lease, op)
        if job.cancelling and outcome is not Outcome.OK:
            outcome = Outcome.CANCELLED
        row = self._row(job, outcome, reason, report, duration_ms, result, exited)
        memory.write_outcome(row)
        verdict = decide(
            outcome,
            Counters(job.charged, job.crashes, job.releases),
            self._limits(job),
            reason=reason,
            after_ms=after_ms,
            chance=self._chance(),
        )
        job.charged, job.crashes, job.releases = verdict.counters
        job.outcome = outcome
        self._carry_out(job, verdict, result)
        self.fill(lease.worker)

    def never_started(self, lease: Lease, op: str = "") -> None:
        """The job was handed out but its handler did not run: no delivery, and nothing is counted."""
        memory = self._memory
        job = memory.jobs[lease.number]
        self._remove(lease, op)
        job.attempt -= 1
        self._clear_holder(job)
        if job.cancelling:
            self.finish(job, Command.CANCELLED, "cancelled before it started")
        else:
            memory.move(job, Command.RETURNED)
            self.offer(job)
        self.fill(lease.worker)

    def _remove(self, lease: Lease, op: str) -> None:
        del self.leases[lease.token]
        del lease.worker.leases[lease.token]
        if op:
            lease.worker.remember_ended(lease.token, op)
        self._registry.refresh(lease.worker)

    def _limits(self, job: Job) -> Limits:
        policy = self._memory.policy
        return Limits(
            policy(job, "attempts_max"),
            policy(job, "crashes_max"),
            policy(job, "backoff_ms"),
            policy(job, "backoff_cap_ms"),
        )

    def _carry_out(self, job: Job, verdict: Verdict, result: bytes | None) -> None:
        memory = self._memory
        self._clear_holder(job)
        if verdict.command is Command.FAILED:
            job.delay_ms = verdict.delay_ms
            job.due_boot_ms = memory.now.boot_ms + verdict.delay_ms
            job.run_at_ms = 0
            job.reason = verdict.reason
            memory.move(job, Command.FAILED)
        elif verdict.command is Command.RETURNED:
            job.reason = verdict.reason
            memory.move(job, Command.RETURNED)
            self.expire_if_over(job)
            if job.state is State.READY:
                self.offer(job)
        else:
            self.finish(job, verdict.command, verdict.reason, result)

    @staticmethod
    def _clear_holder(job: Job) -> None:
        job.worker, job.ticket, job.leased_at_ms = "", b"", 0

    def finish(self, job: Job, command: Command, reason: str, result: bytes | None = None) -> None:
        """Move a job to a final state, and tell those who wait for it or for its room."""
        memory, now = self._memory, self._memory.now
        queue = memory.queues[job.queue]
        job.reason = reason
        job.cancelling = False
        job.finished_at_ms, job.finished_boot_ms = now.wall_ms, now.boot_ms
        memory.move(job, command)
        self._waiting.job_finished(job, result)
        self._waiting.room_made(queue)

    def expire_if_over(self, job: Job) -> None:
        """A waiting job whose expiry has passed becomes dead."""
        if job.expires_boot_ms and job.expires_boot_ms <= self._memory.now.boot_ms:
            self.finish(job, Command.EXPIRED, f"expired: not started within {job.expires_ms} ms")

    def _row(
        self,
        job: Job,
        outcome: Outcome,
        reason: str,
        report: str,
        duration_ms: int,
        result: bytes | None,
        exited: work.Exited | None,
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
            str(outcome),
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
        )
