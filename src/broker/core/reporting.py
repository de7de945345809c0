"""What people ask: status, show, why. Values come from state; nothing is counted on the side.

`why` can be exact because every cause is in this one process's memory.
"""

from typing import Any

from ...proto import messages
from ...proto.model import State
from .events import Found, Received
from .job import Job
from .leasing import Leasing
from .memory import Memory
from .queues import Queue
from .waiting import Waiting, waited
from .workers import Registry, Worker
from .working import Working


class Reporting:
    """The ops that only read."""

    def __init__(
        self, memory: Memory, registry: Registry, leasing: Leasing, waiting: Waiting, working: Working
    ) -> None:
        self._memory = memory
        self._registry = registry
        self._leasing = leasing
        self._waiting = waiting
        self._working = working

    # --- one job -----------------------------------------------------------------------------------------

    def show(self, event: Received, message: messages.Show) -> None:
        """Everything about a job: memory's view of it while it lives, the journal's history."""
        found = event.found.get(message.id, Found())
        job = self._memory.by_id.get(message.id) or found.job
        if job is None:
            self._not_found(event, message.id)
            return
        shown = self._summary(job) | {
            "history": list(found.history),
            "result": found.result,
            "policy": self._policy(job),
        }
        if message.payload:
            shown["payload"] = found.payload
        self._memory.answer(event.connection, event.request, messages.Shown(shown))

    def _summary(self, job: Job) -> dict[str, Any]:
        now = self._memory.now
        scheduled = job.state is State.SCHEDULED
        return row(job) | {
            "position": job.position,
            "charged": job.charged,
            "crashes": job.crashes,
            "releases": job.releases,
            "cancelling": job.cancelling,
            "due_in_ms": max(job.due_boot_ms - now.boot_ms, 0) if scheduled and not job.run_at_ms else None,
            "run_at_ms": job.run_at_ms or None,
            "expires_in_ms": max(job.expires_boot_ms - now.boot_ms, 0) if job.expires_boot_ms else None,
            "leased_at_ms": job.leased_at_ms or None,
            "finished_at_ms": job.finished_at_ms or None,
            "worker": self._worker_name(job),
            "token": list(job.token) if job.attempt else None,
            "payload_bytes": job.payload_bytes,
            "headers": dict(job.headers) if job.headers else {},
        }

    def _worker_name(self, job: Job) -> str:
        worker = self._registry.workers.get(job.worker)
        return worker.name if worker is not None else job.worker

    def _policy(self, job: Job) -> dict[str, int]:
        names = (
            "attempts_max",
            "crashes_max",
            "time_limit_ms",
            "lease_ms",
            "backoff_ms",
            "backoff_cap_ms",
        )
        return {name: self._memory.policy(job, name) for name in names}

    def wait(self, event: Received, message: messages.Wait) -> None:
        """Answer at once for a finished job; a live one answers when it ends."""
        job = self._memory.by_id.get(message.id)
        if job is not None:
            self._waiting.wait_for((event.connection, event.request), job, message.timeout_ms)
            return
        found = event.found.get(message.id)
        if found is None or found.job is None:
            self._not_found(event, message.id)
        else:
            self._memory.answer(event.connection, event.request, waited(found.job, found.result))

    def _not_found(self, event: Received, id: str) -> None:
        self._memory.refuse(event.connection, event.request, "job_not_found", f"no job {id}")

    # --- why -----------------------------------------------------------------------------------------------

    def why(self, event: Received, message: messages.Why) -> None:
        """Every reason why a job is where it is, most important first."""
        found = event.found.get(message.id)
        job = self._memory.by_id.get(message.id) or (found.job if found is not None else None)
        if job is None:
            self._not_found(event, message.id)
            return
        reasons = self._reasons(job)
        answer = messages.Because(job.id, str(job.state), reasons)
        self._memory.answer(event.connection, event.request, answer)

    def _reasons(self, job: Job) -> list[str]:
        if job.state is State.SCHEDULED:
            return self._why_scheduled(job)
        if job.state is State.READY:
            return self._why_ready(job)
        if job.state is State.LEASED:
            return self._why_leased(job)
        return [f"it is {job.state}" + (f": {job.reason}" if job.reason else "")]

    def _why_scheduled(self, job: Job) -> list[str]:
        now = self._memory.now
        if job.run_at_ms:
            reasons = [f"it runs at its date, in {max(job.run_at_ms - now.wall_ms, 0)} ms"]
        else:
            reasons = [f"it becomes ready in {max(job.due_boot_ms - now.boot_ms, 0)} ms"]
        if job.attempt:
            reasons.append(f"attempt {job.attempt} ended with {job.reason}")
        return reasons

    def _why_ready(self, job: Job) -> list[str]:
        memory, queue = self._memory, self._memory.queues[job.queue]
        reasons = [
            text
            for holds, text in (
                (memory.stopping, "the broker is stopping"),
                (memory.draining, "the broker is draining: `stoker resume` ends that"),
                (memory.paused_all, "all queues are paused: `stoker resume` ends that"),
                (queue.paused, f"queue {queue.name} is paused: `stoker resume {queue.name}` ends that"),
            )
            if holds
        ]
        if not self._registry.knows_kind(job.kind):
            reasons.append(f"no connected worker knows kind {job.kind}")
        elif not reasons:
            reasons += self._why_not_its_turn(job, queue)
        return reasons

    def _why_not_its_turn(self, job: Job, queue: Queue) -> list[str]:
        reasons = [f"every worker that knows kind {job.kind} is busy"]
        best = queue.best({job.kind})
        if best is not None and best is not job:
            reasons.append(f"job {best.id} is before it in queue {queue.name} (priority, then arrival)")
        return reasons

    def _why_leased(self, job: Job) -> list[str]:
        lease = self._leasing.leases[job.token]
        worker, now = lease.worker, self._memory.now
        reasons = [f"attempt {job.attempt} belongs to worker {worker.name} (pid {worker.pid})"]
        if job.cancelling:
            reasons.append("it is being cancelled")
        elif lease.kill is not None:
            reasons.append(f"its process is being ended: {lease.kill}")
        if worker.dead:
            reasons.append("the worker is dead; its supervisor has yet to report that nothing of it lives")
        elif worker.connection is None:
            back_ms = max(worker.back_by_ms - now.mono_ms, 0)
            reasons.append(f"the worker is disconnected and has {back_ms} ms left to come back")
        return reasons

    # --- status ----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The queue as a whole; the shell adds what it knows of storage and of itself."""
        memory = self._memory
        return {
            "epoch": memory.epoch,
            "draining": memory.draining,
            "paused_all": memory.paused_all,
            "queues": {name: self._queue(queue) for name, queue in sorted(memory.queues.items())},
            "pools": [self._pool(pool.ticket) for pool in self._registry.pools.values()],
            "workers": [self._worker(worker) for worker in self._registry.workers.values()],
            "kinds": {kind: {"pool": pool} | dict(policy) for kind, (pool, policy) in memory.kinds.items()},
            "warnings": self._warnings(),
        }

    def _queue(self, queue: Queue) -> dict[str, Any]:
        oldest = queue.oldest_ready()
        return {str(state): queue.counts[state] for state in State} | {
            "paused": queue.paused,
            "oldest_ready_ms": self._memory.now.boot_ms - oldest[1] if oldest is not None else 0,
            "bytes": queue.bytes,
            "jobs_max": queue.rules.jobs_max,
            "bytes_max": queue.rules.bytes_max,
            "overflow": str(queue.rules.overflow),
            "waiting_for_room": len(queue.parked),
        }

    def _pool(self, ticket: bytes) -> dict[str, Any]:
        pool = self._registry.pools[ticket]
        return {
            "name": pool.name,
            "pid": pool.pid,
            "connected": pool.connection is not None,
            "workers": len(self._registry.of_pool(pool)),
            "kinds": sorted(pool.kinds),
        }

    def _worker(self, worker: Worker) -> dict[str, Any]:
        jobs = [self._memory.jobs[lease.number].id for lease in worker.leases.values()]
        if worker.dead:
            state = "gone"
        elif worker.connection is None:
            state = "disconnected"
        else:
            state = "busy" if jobs else "idle"
        pool = self._registry.pool_of(worker)
        return {
            "name": worker.name,
            "pid": worker.pid,
            "pool": pool.name if pool is not None else "",
            "state": state,
            "slots": worker.slots,
            "jobs": jobs,
        }

    def _warnings(self) -> list[str]:
        memory = self._memory
        warnings = list(self._working.conflicts.values())
        for queue in memory.queues.values():
            for kind in queue.ready_kinds():
                if not self._registry.knows_kind(kind):
                    warnings.append(f"queue {queue.name}: no connected worker knows kind {kind}")
            if queue.counts[State.DEAD]:
                warnings.append(f"queue {queue.name}: {queue.counts[State.DEAD]} dead jobs need a person")
        if memory.storage_full:
            warnings.append("the disk is full or nearly so: enqueues are refused")
        return warnings


def row(job: Job) -> dict[str, Any]:
    """A job in a listing."""
    return {
        "id": job.id,
        "number": job.number,
        "kind": job.kind,
        "queue": job.queue,
        "state": str(job.state),
        "priority": job.priority,
        "attempt": job.attempt,
        "outcome": job.outcome or None,
        "reason": job.reason,
        "created_at_ms": job.created_at_ms,
    }
