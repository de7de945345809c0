"""Requests that are answered later: `wait`, `drain`, and enqueues that wait for room.

Each has a deadline on the monotonic clock at most, and ends with its connection. They are few
compared to jobs, so one instant (`check_ms`) tells when any of them needs a look.
"""

from typing import NamedTuple

from ...proto import limits, messages
from ...proto.model import State
from . import effects as fx
from .events import Received
from .job import Job
from .memory import Memory
from .queues import Caller, Parked, Queue


class _Waiter(NamedTuple):
    """One `wait` for the end of a job."""

    id: str
    number: int
    deadline_ms: int | None


class Waiting:
    """Open `wait`, `drain` and parked `enqueue` requests."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._waiters: dict[int, dict[Caller, _Waiter]] = {}
        self._by_caller: dict[Caller, _Waiter] = {}
        self._drainers: dict[Caller, int | None] = {}
        self._parked: dict[Caller, Parked] = {}
        self._parked_bytes = 0
        self._let_go: dict[Caller, str] = {}
        """Enqueues that are being looked up once more because their queue had room, and which queue."""
        self._turn = 0
        self.check_ms: int | None = None

    def _check_by(self, deadline_ms: int | None) -> None:
        if deadline_ms is not None and (self.check_ms is None or deadline_ms < self.check_ms):
            self.check_ms = deadline_ms

    def __len__(self) -> int:
        return len(self._by_caller) + len(self._parked) + len(self._drainers) + len(self._let_go)

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
        if not self._waiters:
            return
        for caller in self._waiters.pop(job.number, ()):
            del self._by_caller[caller]
            self._memory.answer(*caller, waited(job, result))

    def is_waiting(self, caller: Caller) -> bool:
        """Whether that request is open here: its id cannot be used for another one now."""
        return (
            caller in self._by_caller
            or caller in self._parked
            or caller in self._drainers
            or caller in self._let_go
        )

    @property
    def is_full(self) -> bool:
        """Whether one more request may not wait."""
        return len(self._by_caller) + len(self._parked) + len(self._drainers) >= limits.WAITS_MAX

    def may_wait(self, event: Received) -> bool:
        """Whether a request may wait for its answer; else it was refused."""
        if self._memory.stopping:
            self._refuse_stopping((event.connection, event.request))
        elif self.is_full:
            text = f"{limits.WAITS_MAX} requests are waiting for their answer already"
            self._memory.refuse(event.connection, event.request, "waits_full", text)
        else:
            return True
        return False

    # --- room ---------------------------------------------------------------------------------------

    def can_park(self, payload_bytes: int) -> bool:
        """Whether one more enqueue of that size may wait."""
        return not self.is_full and self._parked_bytes + payload_bytes <= limits.PARKED_BYTES_MAX

    def park(self, event: Received, queue: Queue, payload_bytes: int, deadline_ms: int) -> None:
        """Keep an enqueue until its queue has room, at most until the deadline."""
        if not event.parked_turn:
            self._turn += 1
            event.parked_turn, event.parked_until_ms = self._turn, deadline_ms
        parked = Parked(event, queue.name, payload_bytes, deadline_ms, event.parked_turn)
        self._parked_bytes += payload_bytes
        caller = (event.connection, event.request)
        self._parked[caller] = queue.parked[caller] = parked
        if event.parked_turn < self._turn:
            # It was let go when there was room, and somebody else was faster: it keeps its turn.
            in_turn = sorted(queue.parked.items(), key=lambda item: item[1].turn)
            queue.parked = dict(in_turn)
        self._check_by(deadline_ms)

    def room_made(self, queue_name: str) -> None:
        """A job left a queue: let those that wait for room try again, first come first served."""
        queue = self._memory.queues.get(queue_name)
        if queue is None or not queue.parked:
            return
        jobs, used = queue.live_count, queue.bytes
        for caller, parked in list(queue.parked.items()):
            used += parked.payload_bytes
            if jobs >= queue.rules.jobs_max or used > queue.rules.bytes_max:
                break
            jobs += 1
            self._unpark(caller)
            self._let_go[caller] = queue_name
            self._memory.effects.append(fx.LookAgain(parked.event))

    def came_back(self, caller: Caller) -> str:
        """An enqueue that was let go is here again: the queue to look at when it has been handled."""
        return self._let_go.pop(caller)

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
            if parked.deadline_ms <= mono and caller in self._parked:
                self._unpark(caller)
                text = f"queue {parked.queue} stayed full"
                detail = {"queue": parked.queue, "waits": True}
                self._memory.refuse(*caller, "queue_full", text, detail)
                self.room_made(parked.queue)
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
        left = [self._let_go.pop(caller) for caller in list(self._let_go) if caller[0] == connection]
        for caller in [caller for caller in self._parked if caller[0] == connection]:
            left.append(self._parked[caller].queue)
            self._unpark(caller)
        # Whoever waits behind them may have room now.
        for queue_name in dict.fromkeys(left):
            self.room_made(queue_name)

    def stop(self) -> None:
        """The broker ends: everybody who waits is told so."""
        for caller in (*self._by_caller, *self._drainers, *self._parked):
            self._refuse_stopping(caller)
        for caller in list(self._parked):
            self._unpark(caller)
        self._waiters.clear()
        self._by_caller.clear()
        self._drainers.clear()

    def _refuse_stopping(self, caller: Caller) -> None:
        text = "the broker is stopping; ask again when it is back"
        self._memory.refuse(*caller, "shutting_down", text)

    def _forget_waiter(self, caller: Caller) -> None:
        waiter = self._by_caller.pop(caller)
        callers = self._waiters[waiter.number]
        del callers[caller]
        if not callers:
            del self._waiters[waiter.number]

    def _unpark(self, caller: Caller) -> None:
        parked = self._parked.pop(caller)
        self._parked_bytes -= parked.payload_bytes
        queue = self._memory.queues[parked.queue]
        del queue.parked[caller]
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
