"""Jobs sent ahead: a worker that runs one quick job after the other is handed several at once.

A job that is pushed when its worker has nothing to do costs a wake-up, a read, a round and a send of its own,
on both sides; for a quick job that is most of what it costs. Several that leave together share all of it.

What was sent ahead waits behind the job that runs, and must not wait long, for another worker may be free by
then. So it is sent only

- to a worker of a pool that says `prefetch`, and only when its slot is taken;
- of kinds of which the last attempts took `QUICK_MS` at most, behind a job of such a kind;
- while enough jobs of the queue are ready for every worker to get one.

And if the first of them is not over `SLOW_MS` later, its kind counts as quick no longer and all that wait
behind it are taken back (`recall`): the supervisor writes into the worker's start page up to which token
nothing may begin, and answers which token began last. Between the two lies no moment in which a job could
begin unseen (see `worker/startpage.py`). What had not begun by then was no delivery.

A lease that `waits` has no time limit yet: that counts from the end of the one before it, and until then it
is also not killed. Whoever wants that gets it taken back.
"""

from ...proto import work
from ...proto.model import State
from . import effects as fx
from .memory import Memory
from .queues import Queue
from .workers import Lease, Pool, Registry, Worker

QUICK_MS = 2

SLOW_MS = 50
"""Longer than a batch may take to reach the disk before the core is told (see `HELD_MS` in `batchtimes`), so
that a disk is not taken for a handler."""

AGAIN_MS = 1000
"""When a supervisor has not answered by then it is asked again."""


class Prefetch:
    """Which workers may get jobs ahead, and which have to give them back."""

    def __init__(self, memory: Memory, registry: Registry) -> None:
        self._memory = memory
        self._registry = registry
        self._lanes: dict[str, Worker] = {}
        """Workers that have leases which wait, by identity; some may have none any more."""
        self.check_ms: int | None = None
        """The earliest instant at which one of them may have to give back."""

    def attempt_ended(self, worker: Worker, kind: str, duration_ms: int | None) -> None:
        """How long an attempt took; None if it did not succeed."""
        pool = self._registry.pool_of(worker)
        if pool is not None:
            quick = duration_ms is not None and duration_ms <= QUICK_MS
            pool.quick_runs[kind] = pool.quick_runs.get(kind, 0) + 1 if quick else 0

    def room(self, worker: Worker) -> int:
        """How many jobs may be sent ahead now: none while there are many still, so that they go in bundles."""
        ahead = len(worker.leases) - worker.slots
        if ahead < 0 or ahead > worker.prefetch // 2 or worker.is_slow or not worker.may_take:
            return 0
        pool = self._registry.pool_of(worker)
        if pool is None or pool.dead or pool.connection is None:
            # Nobody could take them back.
            return 0
        if self._memory.now.mono_ms - worker.first_since_ms > SLOW_MS // 2:
            # They would have to come back soon.
            return 0
        first = next(iter(worker.leases.values()))
        return worker.prefetch - ahead if self.is_quick(pool, self._memory.jobs[first.number].kind) else 0

    def is_quick(self, pool: Pool | None, kind: str) -> bool:
        """Whether a kind has shown, in this pool, that nobody waits long behind it."""
        return pool is not None and pool.quick_runs.get(kind, 0) >= self._memory.rules.quick_runs

    def is_enough(self, queue: Queue) -> bool:
        """Whether so many jobs are ready that no worker misses those that are sent ahead."""
        least = self._memory.rules.ready_per_worker * len(self._registry.workers)
        return queue.counts[State.READY] > least

    def sent(self, worker: Worker) -> None:
        """There are leases that wait."""
        self._lanes[worker.identity] = worker
        self._check_by(worker.first_since_ms + SLOW_MS)

    def excuse(self) -> None:
        """The broker did not run, or the disk took long: nobody was slow."""
        for worker in self._lanes.values():
            worker.first_since_ms = self._memory.now.mono_ms

    def time_passed(self) -> None:
        """Take back what waits behind a job that has turned out to be slow."""
        mono = self._memory.now.mono_ms
        if self.check_ms is None or self.check_ms > mono:
            return
        self.check_ms = None
        for worker in list(self._lanes.values()):
            if not any(lease.waits for lease in worker.leases.values()):
                del self._lanes[worker.identity]
                continue
            due_ms = worker.recalled_ms + AGAIN_MS if worker.is_slow else worker.first_since_ms + SLOW_MS
            if due_ms <= mono:
                self.recall(worker)
                due_ms = mono + AGAIN_MS
            self._check_by(due_ms)

    def recall(self, worker: Worker) -> None:
        """Have everything taken back that has not begun."""
        pool = self._registry.pool_of(worker)
        worker.is_slow, worker.recalled_ms = True, self._memory.now.mono_ms
        if pool is None or not worker.leases:
            return
        first: Lease = next(iter(worker.leases.values()))
        pool.quick_runs[self._memory.jobs[first.number].kind] = 0
        if pool.connection is not None:
            through = list(next(reversed(worker.leases)))
            self._memory.effects.append(fx.Push(pool.connection, work.Recall(worker.nonce, through)))

    def _check_by(self, mono_ms: int) -> None:
        if self.check_ms is None or mono_ms < self.check_ms:
            self.check_ms = mono_ms
