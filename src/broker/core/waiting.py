"""Requests that are answered later: `wait`, `drain`, and enqueues that wait for room.

Each has a deadline on the monotonic clock at most, and ends with its connection. They are few
compared to jobs, so one instant (`check_ms`) tells when any of them needs a look.
"""

from typing import NamedTuple

import attrs

from ...proto import messages
from ...proto.model import State
from . import effects as fx
from .events import Received
from .job import Job
from .memory import Memory
from .queues import Queue

Caller = tuple[int, int]
"""(connection, request): whom to answer."""


class _Waiter(NamedTuple):
    """One `wait` for the end of a job."""

    id: str
    number: int
    deadline_ms: int | None


@attrs.define
class _Parked:
    """One enqueue that waits for room in a queue."""

    event: Received
    queue: str
    payload_bytes: int
    deadline_ms: int


class Waiting:
    """Open `wait`, `drain` and parked `enqueue` requests."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiters: dict[int, dict[Caller, _Waiter]] = {}
        self._by_caller: dict[Caller, _Waiter] = {}
        self._drainers: dict[Caller, int | None] = {}
        self._parked: dict[Caller, _Parked] = {}
        self.check_ms: int | None = None

    def _check_by(self, deadline_ms: int | None) -> None:
        if deadline_ms is not None and (self.check_ms is None or deadline_ms < self.check_ms):
            self.check_ms = deadline_ms

    # --- wait ---------------------------------------------------------------------------------------

    def wait_for(self, caller: Caller, job: Job, timeout_ms: int | None) -> None:
        """Answer when the job is in a final state, or after the timeout."""
        deadline_ms = None if timeout_ms is None else self._memory.now.mono_ms + timeout_ms
        waiter = _Waiter(job.id, job.number, deadline_ms)
        self._waiters.setdefault(job.number, {})[caller] = waiter
        self._by_caller[caller] = waiter
        self._check_by(deadline_ms)

    def job_finished(self, job: Job, result: bytes | None) -> None:
        """Answer everybody who waits for this job."""
        for caller in self._waiters.pop(job.number, ()):
            del self._by_caller[caller]
            self._memory.answer(*caller, waited(job, result))

    def is_waiting(self, caller: Caller) -> bool:
        """Whether that request is open here: its id cannot be used for another one now."""
        return caller in self._by_caller or caller in self._parked or caller in self._drainers

    # --- room ---------------------------------------------------------------------------------------

    def park(self, event: Received, queue: Queue, payload_bytes: int, deadline_ms: int) -> None:
        """Keep an enqueue until its queue has room, at most until the deadline."""
        caller = (event.connection, event.request)
        self._parked[caller] = _Parked(event, queue.name, payload_bytes, deadline_ms)
        queue.parked.append(event)
        self._check_by(deadline_ms)

    def room_made(self, queue: Queue) -> None:
        """A job left a queue: let those that wait for room try again, first come first served."""
        jobs, used = queue.live_count, queue.bytes
        while queue.parked:
            event = queue.parked[0]
            parked = self._parked[event.connection, event.request]
            used += parked.payload_bytes
            if jobs >= queue.rules.jobs_max or used > queue.rules.bytes_max:
                break
            jobs += 1
            queue.parked.popleft()
            del self._parked[event.connection, event.request]
            event.parked_until_ms = parked.deadline_ms
            self._memory.effects.append(fx.LookAgain(event))
        self._memory.forget_if_empty(queue)

    # --- drain ----------------------------------------------------------------------------------------

    def drain_for(self, caller: Caller, timeout_ms: int | None) -> None:
        """Answer when nothing is leased any more, or after the timeout."""
        deadline_ms = None if timeout_ms is None else self._memory.now.mono_ms + timeout_ms
        self._drainers[caller] = deadline_ms
        self._check_by(deadline_ms)

    def drained(self, leased_count: int) -> None:
        """Answer every open drain."""
        for caller in self._drainers:
            self._memory.answer(*caller, messages.Drained(leased_count))
        self._drainers.clear()

    @property
    def somebody_drains(self) -> bool:
        """Whether an open `drain` waits for the last lease to end."""
        return bool(self._drainers)

    # --- ends -------------------------------------------------------------------------------------------

    def time_passed(self, leased_count: int) -> None:
        """Answer what has reached its deadline, and find the next one."""
        mono = self._memory.now.mono_ms
        if self.check_ms is None or self.check_ms > mono:
            return
        for caller, waiter in list(self._by_caller.items()):
            if waiter.deadline_ms is not None and waiter.deadline_ms <= mono:
                self._forget_waiter(caller)
                self._memory.answer(*caller, waited(self._memory.jobs[waiter.number], None))
        for caller, deadline_ms in list(self._drainers.items()):
            if deadline_ms is not None and deadline_ms <= mono:
                del self._drainers[caller]
                self._memory.answer(*caller, messages.Drained(leased_count))
        for caller, parked in list(self._parked.items()):
            if parked.deadline_ms <= mono:
                self._unpark(caller)
                self._memory.refuse(*caller, "queue_full", f"queue {parked.queue} stayed full")
        self._find_next_check()

    def _find_next_check(self) -> None:
        deadlines = [waiter.deadline_ms for waiter in self._by_caller.values()]
        deadlines += list(self._drainers.values())
        deadlines += [parked.deadline_ms for parked in self._parked.values()]
        self.check_ms = min((at for at in deadlines if at is not None), default=None)

    def connection_ended(self, connection: int) -> None:
        """Nobody is there to be answered."""
        for caller in [caller for caller in self._by_caller if caller[0] == connection]:
            self._forget_waiter(caller)
        for caller in [caller for caller in self._drainers if caller[0] == connection]:
            del self._drainers[caller]
        for caller in [caller for caller in self._parked if caller[0] == connection]:
            self._unpark(caller)

    def stop(self) -> None:
        """The broker ends: everybody who waits is told so."""
        for caller in (*self._by_caller, *self._drainers, *self._parked):
            self._memory.refuse(*caller, "shutting_down", "the broker is stopping; ask again when it is back")
        for caller in list(self._parked):
            self._unpark(caller)
        self._waiters.clear()
        self._by_caller.clear()
        self._drainers.clear()

    def _forget_waiter(self, caller: Caller) -> None:
        waiter = self._by_caller.pop(caller)
        callers = self._waiters[waiter.number]
        del callers[caller]
        if not callers:
            del self._waiters[waiter.number]

    def _unpark(self, caller: Caller) -> None:
        parked = self._parked.pop(caller)
        queue = self._memory.queues[parked.queue]
        queue.parked.remove(parked.event)
        self._memory.forget_if_empty(queue)


def waited(job: Job, result: bytes | None) -> messages.Waited:
    """The answer to `wait` for a job as it is now."""
    done = job.state is State.DONE
    return messages.Waited(
        id=job.id,
        state=str(job.state),
        outcome=job.outcome or None,
        reason=job.reason,
        result=result if done else None,
        attempt=job.attempt,
    )
