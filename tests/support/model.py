"""A naive model of the queue: what a reader of the documentation would expect, in lists and dicts.

Written from the description of a job's life, not from the code. It has no indexes, no heaps, no
journal; what is left open by the description (which idle worker, which queue first, the jitter) it
does not decide but checks: `granted` and `delayed` take what the core chose and say if that was
allowed.
"""

from dataclasses import dataclass, field
from typing import Any

FINAL = ("done", "dead", "cancelled")
RELEASES_IN_A_ROW_MAX = 10
RECONNECT_GRACE_MS = 10_000
SUPERVISOR_GRACE_MS = 30_000
KILL_GRACE_MS = 5_000


@dataclass
class ModelJob:
    """One job. Instants are on the boot clock, `date` on the wall clock; None: not set."""

    id: str
    body: tuple[Any, ...]
    kind: str
    queue: str
    priority: int
    position: int
    state: str
    due: int | None = None
    date: int | None = None
    expires: int | None = None
    expires_ms: int | None = None
    attempts_max: int = 5
    crashes_max: int = 3
    backoff_ms: int = 5000
    backoff_cap_ms: int = 3_600_000
    attempt: int = 0
    charged: int = 0
    crashes: int = 0
    releases: int = 0
    token: tuple[int, int] | None = None
    tokens: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Of the attempts that have ended."""
    holder: str | None = None
    lease_ms: int = 60_000
    lease_until: int = 0
    """On the monotonic clock; means something only for a raw worker's lease."""
    cancel_until: int | None = None
    """When a raw worker that does not stop a cancelled job loses it."""
    cancelling: bool = False
    waits_for: tuple[int, int] | None = None
    """Shortest and longest delay that is allowed before the next attempt; seen once, then None."""


@dataclass
class ModelWorker:
    """A worker by its name, over all its connections."""

    name: str
    kinds: tuple[str, ...]
    slots: int
    supervised: bool
    connected: bool = False
    back_by: int | None = None
    """While it is disconnected: the end of its grace, on the monotonic clock."""
    report_by: int | None = None
    """While it is dead and unreported: the end of its supervisor's grace."""
    ended: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """Tokens that it ended itself, and by which op."""
    forgotten: bool = False
    """It was away for too long: a repeat of its ops need not be recognised any more."""


class Model:
    """The queue. `limits` are jobs allowed per queue; the queue `spill` overflows into dead letters."""

    def __init__(self, limits: dict[str, int], dead_max: int) -> None:
        self.limits, self.dead_max = limits, dead_max
        self.jobs: dict[str, ModelJob] = {}
        self.forgotten: dict[str, ModelJob] = {}
        """Dropped jobs: their ids stay known."""
        self.workers: dict[str, ModelWorker] = {}
        self.paused: set[str] = set()
        self.draining = False
        self.sequence = 0
        self.highest_token = (0, 0)
        self.unwritten: set[tuple[int, int]] = set()
        """Tokens of attempts that leave nothing on disk: a restart may forget how they ended."""
        self.cancelled_by_clock: set[tuple[int, int]] = set()
        """Tokens of attempts whose workers did not stop when they were told to."""
        self.nacks_pass: set[tuple[int, int]] = set()
        """Those from before a restart. The journal says that they were cancelled, not by whom: a late nack
        passes for a repeated one, and changes nothing."""
        self.passed_over: dict[str, int] = {}

    def number(self) -> int:
        self.sequence += 1
        return self.sequence

    # --- clients ------------------------------------------------------------------------------------------

    def enqueue(self, job: ModelJob) -> str:
        """What the answer is: `stored`, `same`, or the refusal's code. A stored job gets its position."""
        known = self.jobs.get(job.id) or self.forgotten.get(job.id)
        if known is not None:
            return "same" if known.body == job.body else "conflict"
        if self._is_full(job.queue):
            if job.queue != "spill" or self._count("spill", ("dead",)) >= self.dead_max:
                return "queue_full"
            job.state = "dead"
        job.position = self.number()
        self.jobs[job.id] = job
        return "stored"

    def _count(self, queue: str, states: tuple[str, ...]) -> int:
        return sum(job.queue == queue and job.state in states for job in self.jobs.values())

    def _is_full(self, queue: str) -> bool:
        return self._count(queue, ("scheduled", "ready", "leased")) >= self.limits.get(queue, 1_000_000)

    def cancel(self, id: str, mono_ms: int) -> str:
        job = self.jobs.get(id)
        if job is None:
            return "job_not_found"
        if job.state == "leased":
            if not job.cancelling:
                job.cancelling, job.cancel_until = True, mono_ms + KILL_GRACE_MS
            return "cancelling"
        if job.state in ("done", "dead"):
            return "too_late"
        job.state = "cancelled"
        return "cancelled"

    def kick(self, id: str, boot_ms: int) -> str:
        job = self.jobs.get(id)
        if job is None:
            return "job_not_found"
        if job.state != "dead":
            return "not_dead"
        job.state, job.position = "ready", self.number()
        job.charged = job.crashes = job.releases = 0
        job.due = job.date = None
        if job.expires_ms is not None:
            job.expires = boot_ms + job.expires_ms
        return "kicked"

    def drop(self, id: str) -> str:
        job = self.jobs.get(id)
        if job is None:
            return "job_not_found"
        if job.state not in FINAL:
            return "not_finished"
        self.forgotten[id] = self.jobs.pop(id)
        self.unwritten |= set(job.tokens)
        return "dropped"

    # --- workers ------------------------------------------------------------------------------------------

    def held_by(self, name: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state == "leased" and job.holder == name]

    def runnable(self, worker: ModelWorker) -> list[ModelJob]:
        """Jobs that a worker could be handed now, if it had a slot."""
        held_back = self.draining or "" in self.paused
        return [
            job
            for job in self.jobs.values()
            if job.state == "ready"
            and job.kind in worker.kinds
            and job.queue not in self.paused
            and not held_back
        ]

    def has_room(self, worker: ModelWorker) -> bool:
        return worker.connected and len(self.held_by(worker.name)) < worker.slots

    def granted(
        self, id: str, name: str, token: tuple[int, int], ready_before: set[str], mono_ms: int
    ) -> None:
        """The core handed a job out. Was that allowed, and was it this job's turn?"""
        job, worker = self.jobs[id], self.workers[name]
        assert self.has_room(worker), f"{name} has no free slot"
        runnable = self.runnable(worker)
        assert job in runnable, f"{id} ({job.state}) may not go to {name}"
        assert token > self.highest_token, "tokens only grow"
        self.highest_token = token
        for other in runnable:
            if other.queue == job.queue and other.id in ready_before:
                assert (job.priority, job.position) <= (other.priority, other.position), (
                    f"{other.id} is first"
                )
        self._take_turns(job.queue, {other.queue for other in runnable if other.id in ready_before})
        job.state, job.holder, job.token = "leased", name, token
        job.attempt += 1
        job.lease_until = mono_ms + job.lease_ms

    def _take_turns(self, served: str, waiting: set[str]) -> None:
        """No queue is passed over more often than there are others."""
        queues = {job.queue for job in self.jobs.values()}
        for queue in queues:
            passed = queue in waiting and queue != served
            self.passed_over[queue] = self.passed_over.get(queue, 0) + 1 if passed else 0
            assert self.passed_over[queue] < max(len(queues), 2), f"queue {queue} never has its turn"

    def joined(self, worker: ModelWorker, held: dict[tuple[int, int], str], mono_ms: int) -> None:
        """A worker said hello with what it holds, each `running` or `unstarted`."""
        self.workers[worker.name] = worker
        worker.connected, worker.back_by = True, None
        for job in self.held_by(worker.name):
            phase = held.get(job.token or (0, 0))
            if phase == "running":
                self._renew(job, mono_ms + job.lease_ms)
            elif job.token is not None:
                worker.ended[job.token] = "release"
                # A pool's worker keeps what it started until that is confirmed: the rest never reached it.
                never_started = phase == "unstarted" or worker.supervised
                self.end(job, "not_started" if never_started else "released")

    def left(self, name: str, mono_ms: int) -> None:
        """A worker's connection ended while its process lives."""
        worker = self.workers[name]
        worker.connected, worker.back_by = False, mono_ms + RECONNECT_GRACE_MS
        for job in self.held_by(name):
            self._renew(job, worker.back_by)

    @staticmethod
    def _renew(job: ModelJob, until_ms: int) -> None:
        """A lease never becomes shorter."""
        job.lease_until = max(job.lease_until, until_ms)

    def died(self, name: str, mono_ms: int) -> None:
        """A worker's process died: its supervisor will report, or nobody."""
        worker = self.workers[name]
        worker.connected, worker.back_by = False, None
        if worker.supervised:
            worker.report_by = mono_ms + SUPERVISOR_GRACE_MS
        else:
            self._lose_all(name)

    def exited(self, name: str, running: tuple[int, int] | None) -> None:
        """A supervisor's report: the attempt that ran crashed, others were never started."""
        self.workers[name].report_by = None
        for job in self.held_by(name):
            self.end(job, "crash" if job.token == running else "not_started")

    def beat(self, name: str, tokens: list[tuple[int, int]], mono_ms: int) -> None:
        """A heartbeat of a worker for what it runs."""
        for job in self.held_by(name):
            if job.token in tokens:
                self._renew(job, mono_ms + job.lease_ms)

    def _lose_all(self, name: str) -> None:
        for job in self.held_by(name):
            self.end(job, "lost")

    def lease(self, name: str, token: tuple[int, int]) -> ModelJob | None:
        return next((job for job in self.held_by(name) if job.token == token), None)

    def report(
        self, name: str, token: tuple[int, int], op: str, outcome: str, after_ms: int | None
    ) -> set[str]:
        """An ack, nack or release; which answers are right: `done`, `lease_lost`."""
        worker, job = self.workers[name], self.lease(name, token)
        if job is not None:
            worker.ended[token] = op
            self.end(job, outcome, after_ms)
            return {"done"}
        if worker.ended.get(token) != op:
            passes = op == "nack" and token in self.nacks_pass
            return {"done", "lease_lost"} if passes else {"lease_lost"}
        return {"done", "lease_lost"} if worker.forgotten or token in self.unwritten else {"done"}

    # --- ends of attempts -----------------------------------------------------------------------------------

    def end(self, job: ModelJob, outcome: str, after_ms: int | None = None) -> None:
        """An attempt has ended, by whatever."""
        job.holder = job.cancel_until = None
        job.tokens.append(job.token or (0, 0))
        if outcome == "not_started":
            self.unwritten.add(job.tokens[-1])
            job.attempt -= 1
        if job.cancelling and outcome != "ok":
            job.state = "cancelled"
        elif outcome == "not_started":
            job.state = "ready"
        elif outcome == "ok":
            job.state, job.releases = "done", 0
        elif outcome in ("released", "shutdown"):
            job.releases += 1
            job.state = "dead" if job.releases >= RELEASES_IN_A_ROW_MAX else "ready"
        else:
            self._charge(job, outcome, after_ms)
        job.cancelling = False

    def _charge(self, job: ModelJob, outcome: str, after_ms: int | None) -> None:
        job.charged += 1
        job.releases = 0
        crashed = outcome in ("crash", "lost")
        job.crashes += crashed
        is_dead = outcome == "permanent" or job.charged >= job.attempts_max
        if is_dead or (crashed and job.crashes >= job.crashes_max):
            job.state = "dead"
        elif after_ms == 0 or (crashed and job.crashes == 1):
            job.state = "ready"
        else:
            job.state = "scheduled"
            full = min(job.backoff_ms * 2 ** (job.charged - 1), job.backoff_cap_ms)
            job.waits_for = (full * 9 // 10, full) if after_ms is None else (after_ms, after_ms)

    # --- time -----------------------------------------------------------------------------------------------

    def restarted(self, mono_ms: int, sequence: int) -> None:
        """The broker is back: workers have their grace, leases begin anew, a drain is over.

        It goes on counting at `sequence`, behind whatever it may have given.
        """
        assert sequence >= self.sequence
        self.sequence = sequence
        self.draining = False
        # Whose turn it was is not written down: the queues begin anew.
        self.passed_over.clear()
        self.nacks_pass |= self.cancelled_by_clock
        for worker in self.workers.values():
            worker.connected = False
            worker.back_by = mono_ms + RECONNECT_GRACE_MS
            worker.forgotten = False
        for job in self.jobs.values():
            job.lease_until = mono_ms + max(job.lease_ms, RECONNECT_GRACE_MS)
            if job.cancelling:
                job.cancel_until = mono_ms + KILL_GRACE_MS

    def look_at_clocks(self, mono_ms: int, boot_ms: int, wall_ms: int) -> None:
        """Leases and graces run out, waits are over, expiries pass."""
        for worker in self.workers.values():
            if worker.report_by is not None and worker.report_by <= mono_ms:
                self._lose_all(worker.name)
            elif worker.back_by is not None and worker.back_by <= mono_ms:
                worker.forgotten = True
                if not worker.supervised:
                    self._lose_all(worker.name)
        for job in self.jobs.values():
            self._look_at_lease(job, mono_ms)
        self._look_at_waits(boot_ms, wall_ms)

    def _look_at_lease(self, job: ModelJob, mono_ms: int) -> None:
        """A raw worker's lease ends by the clock; a supervised one's process is killed first."""
        if job.state == "leased" and job.holder is not None and not self.workers[job.holder].supervised:
            if job.cancel_until is not None and job.cancel_until <= mono_ms:
                self.cancelled_by_clock.add(job.token or (0, 0))
                self.end(job, "cancelled")
            elif job.lease_until <= mono_ms and job.cancel_until is None:
                self.end(job, "lost")

    def _look_at_waits(self, boot_ms: int, wall_ms: int) -> None:
        for job in self.jobs.values():
            if job.state in ("scheduled", "ready") and job.expires is not None and job.expires <= boot_ms:
                job.state = "dead"
            elif job.state == "scheduled" and job.waits_for is None:
                by_date = job.date is not None and job.date <= wall_ms
                if by_date or (job.due is not None and job.due <= boot_ms):
                    job.state, job.due, job.date = "ready", None, None
