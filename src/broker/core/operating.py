"""What a person or a client does to jobs that exist: cancel, kick, drop, pause, resume, drain.

A final state is never overwritten; the answer to whoever comes too late names it.
"""

from ...proto import messages
from ...proto.model import Outcome, State
from .events import Received
from .job import Job
from .leasing import Leasing
from .lifecycle import Command
from .liveness import Liveness
from .memory import Memory
from .waiting import Waiting


class Operating:
    """The ops that change jobs and queues by hand."""

    def __init__(self, memory: Memory, leasing: Leasing, liveness: Liveness, waiting: Waiting) -> None:
        self._memory = memory
        self._leasing = leasing
        self._liveness = liveness
        self._waiting = waiting

    def cancel(self, event: Received, message: messages.Cancel) -> None:
        """Withdraw a job: at once if it waits, by ending its process if it runs."""
        memory = self._memory
        job = self._job(event, message.id)
        if job is None:
            return
        if job.state in (State.DONE, State.DEAD):
            text = f"job {job.id} is already {job.state}"
            memory.refuse(event.connection, event.request, "too_late", text, _detail(job))
            return
        state = "cancelling" if job.state is State.LEASED else "cancelled"
        memory.answer(event.connection, event.request, messages.Cancelled(job.id, state))
        self.withdraw(job)

    def withdraw(self, job: Job) -> None:
        """Cancel it, if it is not finished."""
        if job.state is State.LEASED:
            lease = self._leasing.leases[job.token]
            job.cancelling = True
            self._memory.touch(job)
            if lease.kill is None:
                self._liveness.kill(lease, Outcome.CANCELLED)
        elif job.state in (State.SCHEDULED, State.READY):
            self._leasing.finish(job, Command.CANCELLED, "cancelled before it ran")

    def kick(self, event: Received, message: messages.Kick) -> None:
        """Revive one dead job, or the oldest dead jobs of a queue."""
        if message.id is None:
            dead = self._dead_of_queue(event)
            for each in dead:
                self._revive(each)
            self._counted(event, len(dead))
            return
        job = self._job(event, message.id)
        if job is None:
            return
        if job.state is State.DEAD:
            self._revive(job)
            self._counted(event, 1)
        else:
            text = f"job {job.id} is {job.state}; only a dead job can be kicked"
            self._memory.refuse(event.connection, event.request, "not_dead", text, _detail(job))

    def _revive(self, job: Job) -> None:
        memory = self._memory
        job.position, job.epoch = memory.next_number(), memory.epoch
        job.charged = job.crashes = job.releases = 0
        job.reason = "kicked"
        job.finished_at_ms = job.finished_boot_ms = 0
        job.created_boot_ms = memory.now.boot_ms
        job.due_boot_ms = job.delay_ms = job.run_at_ms = 0
        # A kicked job gets its whole expiry again, else one that expired could never be revived.
        job.expires_boot_ms = memory.now.boot_ms + job.expires_ms if job.expires_ms else 0
        memory.revive(job)
        self._leasing.offer(job)

    def drop(self, event: Received, message: messages.Drop) -> None:
        """Delete one finished job, or the oldest dead jobs of a queue; ids stay remembered."""
        if message.id is None:
            dead = self._dead_of_queue(event)
            for each in dead:
                self._delete(each)
            self._counted(event, len(dead))
            return
        job = self._job(event, message.id)
        if job is None:
            return
        if job.number in self._memory.jobs:
            text = f"job {job.id} is {job.state}; cancel it first"
            self._memory.refuse(event.connection, event.request, "not_finished", text, _detail(job))
        else:
            self._delete(job)
            self._counted(event, 1)

    def _delete(self, job: Job) -> None:
        memory = self._memory
        rules, boot_ms = memory.rules, memory.now.boot_ms
        kept_ms = rules.id_kept_caller_ms if job.id_by_caller else rules.id_kept_library_ms
        # A job of an earlier start may be on another boot's clock: too long is better than too short.
        created_boot_ms = job.created_boot_ms if job.epoch == memory.epoch else boot_ms
        until_ms = kept_until(created_boot_ms, kept_ms, boot_ms)
        memory.delete(job.number, job.id, job.body_hash, job.queue, job.state, until_ms)

    def _dead_of_queue(self, event: Received) -> list[Job]:
        found = [found.job for found in event.found.values() if found.job is not None]
        return [job for job in found if job.state is State.DEAD and job.number not in self._memory.jobs]

    def _counted(self, event: Received, job_count: int) -> None:
        self._memory.answer(event.connection, event.request, messages.Counted(job_count))

    def pause(self, event: Received, message: messages.Pause) -> None:
        """Hand out no more jobs of a queue, or of any."""
        memory = self._memory
        if message.queue and not memory.may_use(message.queue):
            memory.refuse_queue(event.connection, event.request, message.queue)
            return
        memory.set_paused(message.queue or "", True)
        memory.answer(event.connection, event.request, messages.Done())

    def resume(self, event: Received, message: messages.Resume) -> None:
        """End a pause; without a queue also a drain, and a pause of all (not those of single queues)."""
        memory = self._memory
        memory.set_paused(message.queue or "", False)
        if message.queue is None:
            memory.draining = False
        memory.answer(event.connection, event.request, messages.Done())
        self._leasing.fill_all()

    def drain(self, event: Received, message: messages.Drain) -> None:
        """Hand out no more jobs at all; answered when the last attempt has ended."""
        self._memory.draining = True
        if self._waiting.may_wait(event):
            self._waiting.drain_for((event.connection, event.request), message.timeout_ms)

    def _job(self, event: Received, id: str) -> Job | None:
        """The job of an id, from memory or disk; None after refusing the request."""
        job = self._memory.by_id.get(id)
        if job is None:
            found = event.found.get(id)
            job = found.job if found is not None else None
        if job is None:
            self._memory.refuse(event.connection, event.request, "job_not_found", f"no job {id}")
        return job


def _detail(job: Job) -> dict[str, str]:
    """What a refusal says of the job that it is about."""
    return {"id": job.id, "state": str(job.state)}


def kept_until(created_boot_ms: int, kept_ms: int, boot_ms: int) -> int:
    """Until when an id is remembered beyond its row; 0 if its time is over already."""
    until_ms = min(created_boot_ms, boot_ms) + kept_ms
    return until_ms if until_ms > boot_ms else 0
