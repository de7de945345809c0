"""What people ask: status, show, why. Values come from state; nothing is counted on the side.

`why` can be exact because every cause is in this one process's memory.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import Any

from ...proto import limits, messages
from ...proto.model import COMMAND, State
from ...proto.nonce import code_of
from ...proto.progress import progress_text
from ...proto.span import span
from .events import Found, Received
from .job import Job
from .leasing import Leasing
from .memory import Memory
from .queues import Queue
from .waiting import Waiting, waited
from .workers import Lease, Pool, Registry, Worker


class Reporting:
    """The ops that only read."""

    def __init__(self, memory: Memory, registry: Registry, leasing: Leasing, waiting: Waiting) -> None:
        self._memory = memory
        self._registry = registry
        self._leasing = leasing
        self._waiting = waiting

    # --- one job -----------------------------------------------------------------------------------------

    def show(self, event: Received, message: messages.Show) -> None:
        """Everything about a job: memory's view of it while it lives, the journal's history."""
        found = event.found.get(message.id, Found())
        job = self._memory.by_id.get(message.id) or found.job
        if job is None:
            self.not_found(event, message.id)
            return
        shown = self._summary(job) | {
            "history": [
                {**_measured(attempt), "code": code_of(str(attempt["worker"])) or None}
                for attempt in found.history
            ],
            "result": found.result,
            "policy": self._memory.policy(job)._asdict(),
        }
        if message.payload:
            shown["payload"] = found.payload
        self._memory.answer(event.connection, event.request, messages.Shown(shown))

    def _summary(self, job: Job) -> dict[str, Any]:
        now = self._memory.now
        scheduled = job.state is State.SCHEDULED
        expires = job.expires_boot_ms > 0 and job.state in (State.SCHEDULED, State.READY)
        return row(job) | {
            "position": job.position,
            "charged": job.charged,
            "crashes": job.crashes,
            "releases": job.releases,
            "cancelling": job.cancelling,
            "due_in_ms": max(job.due_boot_ms - now.boot_ms, 0) if scheduled and not job.run_at_ms else None,
            "run_at_ms": job.run_at_ms or None,
            "expires_in_ms": max(job.expires_boot_ms - now.boot_ms, 0) if expires else None,
            "leased_at_ms": job.leased_at_ms or None,
            "finished_at_ms": job.finished_at_ms or None,
            "worker": self._worker_name(job),
            "code": code_of(job.worker) or None,
            "token": list(job.token) if job.attempt else None,
            "progress": self._progress(job),
            "payload_bytes": job.payload_bytes,
            "headers": dict(job.headers) if job.headers else {},
        }

    def _progress(self, job: Job) -> dict[str, Any] | None:
        lease = self._leasing.leases.get(job.token) if job.state is State.LEASED else None
        if lease is None or lease.progress is None:
            return None
        _, done, total, text = lease.progress
        ago_ms = self._memory.now.mono_ms - lease.progress_ms
        return {"done": done, "total": total, "text": text, "ago_ms": ago_ms}

    def _worker_name(self, job: Job) -> str:
        worker = self._registry.workers.get(job.worker)
        return worker.name if worker is not None else job.worker

    def wait(self, event: Received, message: messages.Wait) -> None:
        """Answer at once for a finished job; a live one answers when it ends."""
        job = self._memory.by_id.get(message.id)
        if job is not None and self._waiting.may_wait(event):
            self._waiting.wait_for((event.connection, event.request), job, message.timeout_ms)
        if job is not None:
            return
        found = event.found.get(message.id)
        if found is None or found.job is None:
            self.not_found(event, message.id)
        else:
            self._memory.answer(event.connection, event.request, waited(found.job, found.result))

    def not_found(self, event: Received, id: str) -> None:
        """Refuse a request about a job that is neither here nor on disk."""
        self._memory.refuse(event.connection, event.request, "job_not_found", f"no job {id}")

    # --- why -----------------------------------------------------------------------------------------------

    def why(self, event: Received, message: messages.Why) -> None:
        """Every reason why a job is where it is, most important first."""
        found = event.found.get(message.id)
        job = self._memory.by_id.get(message.id) or (found.job if found is not None else None)
        if job is None:
            self.not_found(event, message.id)
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
            reasons = [f"it runs at its date, in {span(job.run_at_ms - now.wall_ms)}"]
        else:
            reasons = [f"it becomes ready in {span(job.due_boot_ms - now.boot_ms)}"]
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
        if job.kind not in self._registry.known_kinds():
            reasons.append(_unknown(job.kind))
            if not any(pool.connection is not None for pool in self._registry.pools.values()):
                reasons.append("no pool of workers is connected; start one with `stoker pool APP`")
        elif not any(self._registry.serving(job.kind, job.queue)):
            reasons.append(
                f"no connected worker that knows kind {job.kind} takes jobs from queue {job.queue}"
            )
        elif not reasons:
            reasons += self._why_not_its_turn(job, queue)
        return reasons

    def _why_not_its_turn(self, job: Job, queue: Queue) -> list[str]:
        if job.suspect:
            return ["a worker died while it ran this and other jobs: it waits for one that runs nothing else"]
        reasons = [f"every worker that knows kind {job.kind} is busy"]
        if any(worker.runs_alone or worker.clears for worker in self._registry.serving(job.kind, job.queue)):
            reasons.append(
                "one runs a job alone, or makes room for that, since a worker died with several jobs"
            )
        best = queue.best({job.kind})
        if best is not None and best is not job:
            reasons.append(f"job {best.id} is before it in queue {queue.name} (priority, then arrival)")
        return reasons

    def _why_leased(self, job: Job) -> list[str]:
        lease = self._leasing.leases[job.token]
        worker, now = lease.worker, self._memory.now
        reasons = [f"attempt {job.attempt} belongs to worker {worker.name} (pid {worker.pid})"]
        if lease.waits:
            reasons.append("it was sent ahead, and begins when the job that the worker runs has ended")
        if lease.progress is not None:
            ago = span(now.mono_ms - lease.progress_ms)
            reasons.append(f"it said {ago} ago how far it is: {progress_text(*lease.progress[1:])}")
        if job.cancelling:
            reasons.append("it is being cancelled")
        elif lease.kill is not None:
            reasons.append(f"its process is being ended: {lease.kill}")
        if worker.dead:
            reasons.append("the worker is dead; its supervisor has yet to report that nothing of it lives")
        elif worker.connection is None:
            left = span(worker.back_by_ms - now.mono_ms)
            reasons.append(f"the worker is disconnected and has {left} left to come back")
            reasons += self._why_not_ended(lease)
        return reasons

    def _why_not_ended(self, lease: Lease) -> list[str]:
        pool = self._registry.pool_of(lease.worker)
        if lease.kill is None or (pool is not None and pool.connection is not None):
            return []
        return [f"nobody is connected who could end it: make sure that pid {lease.worker.pid} has ended"]

    # --- status ----------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The queue as a whole; the shell adds what it knows of storage and of itself.

        However much there is, the answer stays small: `totals` count everything, the lists name the
        first `STATUS_ROWS_MAX` (of queues those that are not at rest), `left_out` says how many more. So do
        the kinds of a pool and the jobs of a worker, for its row.
        """
        memory, rows_max = self._memory, limits.STATUS_ROWS_MAX
        queues, kinds = memory.queues, memory.kinds
        workers, pools = self._registry.workers, self._registry.pools
        shown = nsmallest(rows_max, queues.values(), key=lambda queue: (queue.is_at_rest, queue.name))
        sizes = (("queues", queues), ("pools", pools), ("workers", workers), ("kinds", kinds))
        return {
            "epoch": memory.epoch,
            "draining": memory.draining,
            "paused_all": memory.paused_all,
            "totals": self._totals(),
            "queues": {queue.name: self._queue(queue) for queue in sorted(shown, key=lambda q: q.name)},
            "pools": [self._pool(pool) for pool in islice(pools.values(), rows_max)],
            "workers": [self._worker(worker) for worker in islice(workers.values(), rows_max)],
            "kinds": {
                kind: {"pool": pool} | dict(policy)
                for kind, (pool, policy) in islice(kinds.items(), rows_max)
            },
            "left_out": {name: max(len(held) - rows_max, 0) for name, held in sizes},
            "warnings": self._warnings(),
        }

    def _totals(self) -> dict[str, int]:
        queues = self._memory.queues.values()
        return {str(state): sum(queue.counts[state] for queue in queues) for state in State}

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

    def _pool(self, pool: Pool) -> dict[str, Any]:
        return {
            "name": pool.name,
            "pid": pool.pid,
            "identity": pool.identity,
            "connected": pool.connection is not None,
            "workers": len(self._registry.of_pool(pool)),
            "kinds": nsmallest(limits.STATUS_ROW_ITEMS_MAX, pool.kinds),
            "kinds_left_out": max(len(pool.kinds) - limits.STATUS_ROW_ITEMS_MAX, 0),
            "code": pool.code or None,
            "reload": pool.reload,
        }

    def _worker(self, worker: Worker) -> dict[str, Any]:
        shown = islice(worker.leases.values(), limits.STATUS_ROW_ITEMS_MAX)
        jobs = [self._memory.jobs[lease.number].id for lease in shown]
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
            "jobs_left_out": len(worker.leases) - len(jobs),
        }

    def _warnings(self) -> list[str]:
        warnings = list(islice(self._all_warnings(), limits.WARNINGS_MAX + 1))
        if len(warnings) > limits.WARNINGS_MAX:
            warnings[-1] = f"there are more than these {limits.WARNINGS_MAX} warnings"
        return warnings

    def _all_warnings(self) -> Iterable[str]:
        memory = self._memory
        if memory.storage_full:
            yield "the disk is full or nearly so: enqueues are refused"
        yield from self._contradictions()
        for pool in self._registry.pools.values():
            if pool.connection is not None and pool.reload is not None and pool.reload["state"] == "failed":
                yield f"pool {pool.name}: its last reload failed, and the old code goes on serving"
        known = self._registry.known_kinds()
        for queue in memory.queues.values():
            if queue.counts[State.DEAD]:
                yield f"queue {queue.name}: dead jobs that need a person: {queue.counts[State.DEAD]}"
            for kind in queue.ready_kinds:
                if kind not in known:
                    yield f"queue {queue.name}: {_unknown(kind)}"

    def _contradictions(self) -> Iterable[str]:
        """Kinds that supervisors who are here now declare differently."""
        first: dict[str, Pool] = {}
        for pool in self._registry.pools.values():
            if pool.connection is None:
                continue
            for kind, policy in pool.kinds.items():
                other = first.setdefault(kind, pool)
                if other.kinds[kind] != policy:
                    yield f"pools {other.name} and {pool.name} declare kind {kind} differently"


def _unknown(kind: str) -> str:
    text = f"no connected worker knows kind {kind}"
    return text if kind != COMMAND else f"{text}, for which a pool needs --commands"


def _measured(attempt: Mapping[str, Any]) -> Mapping[str, Any]:
    """An attempt's record, without figures that nobody took: those come with the end of a process alone."""
    if attempt["memory_peak_bytes"]:
        return attempt
    return {**attempt, "memory_peak_bytes": None, "cpu_ms": None}


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
