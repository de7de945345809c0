"""The real core, looked at after each step: what must hold at every instant, cheaply.

The checks count again what the core keeps. A fault is an AssertionError in the very step that made
it, so the last event of the trace is its cause.
"""

from collections import Counter
from collections.abc import Callable
from itertools import chain

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.proto import messages
from stoker.proto.model import LIVE_STATES, State

RECOUNT_EVERY = 16
"""Steps between two full recounts: they look at every job."""


class WatchedCore(Core):
    """A core that checks itself. See the module."""

    def __init__(self, rules: Rules, *, epoch: int, now: ev.Now, chance: Callable[[], float]) -> None:
        super().__init__(rules, epoch=epoch, now=now, chance=chance)
        self._deadline: ev.Now | None = None

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        sequence = self._memory.sequence
        effects = super().step(event, now)
        for effect in effects:
            if isinstance(effect, fx.Answer) and isinstance(effect.message, messages.Enqueued):
                self._check_room(effect.message, sequence)
        if self.steps % RECOUNT_EVERY == 0:
            self.check()
        return effects

    def _check_room(self, answer: messages.Enqueued, sequence: int) -> None:
        """A new job found room; a repeat of an old one needs none."""
        job = self._memory.by_id.get(answer.id)
        if job is not None and job.number > sequence and job.position == job.number:
            queue = self._memory.queues[job.queue]
            live = sum(each.queue == job.queue for each in self._memory.jobs.values())
            assert live <= queue.rules.jobs_max, (
                f"room_is_kept: queue {job.queue} took in its job number {live}"
            )

    def check(self) -> None:
        """Everything that must hold, by counting again."""
        self._check_counts()
        self._check_leases()
        self._check_nobody_idles()

    def _check_counts(self) -> None:
        memory = self._memory
        counts = Counter((job.queue, job.state) for job in memory.jobs.values())
        for queue in memory.queues.values():
            for state in LIVE_STATES:
                assert queue.counts[state] == counts.pop((queue.name, state), 0), (queue.name, state)
            assert min(queue.counts.values()) >= 0, f"queue {queue.name} counts below nothing"
            assert not queue.is_empty, f"queue {queue.name} is empty and not forgotten"
        assert not counts, f"uncounted: {counts}"
        assert {id(job) for job in memory.by_id.values()} == {id(job) for job in memory.jobs.values()}

    def _check_leases(self) -> None:
        leases = self._leasing.leases
        leased = {job.token for job in self._memory.jobs.values() if job.state is State.LEASED}
        assert leased == leases.keys(), "leases and leased jobs differ"
        held = list(chain.from_iterable(worker.leases for worker in self._registry.workers.values()))
        assert sorted(held) == sorted(leases), "a lease has no worker, or two"
        for worker in self._registry.workers.values():
            assert (
                worker.connection is None or len(worker.leases) <= max(worker.slots, 1) + worker.prefetch
            ), worker.name
            waiting = [lease.waits for lease in worker.leases.values()]
            assert waiting == sorted(waiting), "something runs that stands behind what waits"
            assert not waiting[:1] or not waiting[0], "nothing runs before what waits"

    def _check_nobody_idles(self) -> None:
        """No worker waits while there is a job that it could run."""
        if self._leasing.is_held_back:
            return
        for worker in self._registry.workers.values():
            for queue in self._memory.queues.values():
                waits = worker.free_slots > 0 and not queue.paused and queue.best(worker.kinds) is not None
                assert not waits, f"worker {worker.name} idles beside a job in queue {queue.name}"

    def live_jobs(self) -> int:
        """How many jobs are not finished."""
        return len(self._memory.jobs)

    def finished_counts(self) -> dict[tuple[str, str], int]:
        """Jobs by (queue, state), as `status` would say."""
        queues = self._memory.queues.values()
        return {(queue.name, str(state)): n for queue in queues for state, n in queue.counts.items() if n}
