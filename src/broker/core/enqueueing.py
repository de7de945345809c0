"""Taking jobs in: idempotent by id, bounded by the queue's limits, settled by the kind's policy.

The order of the checks is part of the contract. Idempotency comes first: a repeat of an enqueue
that was accepted gets its answer also when the queue is full now, the disk is full or the broker is
stopping, because the job exists. Only then may anything refuse.
"""

from hashlib import blake2b

from ...proto import limits, messages
from ...proto.model import Overflow, State
from .events import Found, Received
from .job import Job
from .leasing import Leasing
from .lifecycle import Command
from .memory import Memory
from .queues import Queue
from .rules import either
from .waiting import Waiting

# Members by names of their own: in Python 3.11 looking one up in its class costs more than a call.
_DEAD, _READY, _SCHEDULED = State.DEAD, State.READY, State.SCHEDULED

_QUEUE, _HEADERS = map(messages.Enqueue._fields.index, ("queue", "headers"))
"""Between these two are the optional fields that say what the job is."""

_NO_OPTIONS = (None,) * (_HEADERS - _QUEUE)


def body_hash(message: messages.Enqueue) -> bytes:
    """16 bytes over everything the enqueue says of the job.

    Not `fresh` and `wait_ms`: those say how it is sent. The fields come first, as text that ends where
    it ends, so that no payload can look like a field.
    """
    headers = sorted(message.headers.items()) if message.headers else None
    options = message[_QUEUE:_HEADERS]
    said = (message.id, message.kind, None if options == _NO_OPTIONS else options, headers)
    digest = blake2b(repr(said).encode(), digest_size=16)
    digest.update(message.payload)
    return digest.digest()


def contradiction(message: messages.Enqueue) -> str:
    """Fields that are each legal but cannot hold together; empty if there are none."""
    if message.delay_ms and message.run_at_ms:
        return "enqueue: give `delay_ms` or `run_at_ms`, not both"
    if cap_below_base(message.backoff_ms, message.backoff_cap_ms):
        return "enqueue: `backoff_cap_ms` is below `backoff_ms`"
    return ""


def cap_below_base(base_ms: int | None, cap_ms: int | None) -> bool:
    """Whether a backoff that one hand wrote contradicts itself."""
    return base_ms is not None and cap_ms is not None and cap_ms < base_ms


def _fullness(queue: Queue, size: int) -> str:
    """What of a queue's limits is in the way of a payload of that size."""
    rules = queue.rules
    if size > rules.bytes_max:
        return f"{size} bytes never fit into queue {queue.name}, which may hold {rules.bytes_max} in all"
    text = (
        f"queue {queue.name} is full: {queue.live_count} of {rules.jobs_max} jobs, "
        f"{queue.bytes} of {rules.bytes_max} bytes"
    )
    if rules.overflow is Overflow.DEAD:
        text += f", {queue.counts[_DEAD]} of {rules.dead_max} dead letters"
    return text


class Enqueueing:
    """The op `enqueue`."""

    def __init__(self, memory: Memory, leasing: Leasing, waiting: Waiting) -> None:
        self._memory = memory
        self._leasing = leasing
        self._waiting = waiting

    def enqueue(self, event: Received, message: messages.Enqueue) -> None:
        """Store the job, or say why not; see the module for the order of the checks."""
        if not event.parked_turn:
            self._enqueue(event, message)
            return
        queue_name = self._waiting.came_back((event.connection, event.request))
        self._enqueue(event, message)
        # It may not have taken the room it was let go for.
        self._waiting.room_made(queue_name)

    def _enqueue(self, event: Received, message: messages.Enqueue) -> None:
        memory = self._memory
        caller = (event.connection, event.request)
        digest = body_hash(message)
        if self._answer_repeat(event, message, digest):
            return
        if wrong := contradiction(message):
            memory.refuse(*caller, "bad_message", wrong)
        elif memory.stopping:
            memory.refuse(*caller, "shutting_down", "the broker is stopping; enqueue again when it is back")
        elif memory.storage_full:
            memory.refuse(*caller, "storage_full", "the disk is full; enqueues go on once space returns")
        elif memory.ids_kept >= memory.rules.ids_kept_max:
            memory.log("ids_full", burst=1, ids=memory.ids_kept)
            memory.refuse(*caller, "ids_full", f"{memory.ids_kept} ids are remembered; the oldest end soon")
        elif len(memory.jobs) >= memory.rules.jobs_max and not event.parked_turn:
            # One that was parked has waited for its queue alone, and has room there now. No more come
            # past the limit than may be parked.
            memory.log("jobs_full", burst=1, jobs=len(memory.jobs))
            text = f"all queues together hold {len(memory.jobs)} live jobs, as many as `jobs_max` allows"
            memory.refuse(*caller, "queue_full", text, {"waits": False})
        else:
            self._take_in(event, message, digest)

    def _answer_repeat(self, event: Received, message: messages.Enqueue, digest: bytes) -> bool:
        """Answer an enqueue whose id is known: as the first time, or as a conflict."""
        known = self._known(message.id, event.found.get(message.id))
        if known is None:
            return False
        number, known_hash = known
        if known_hash == digest and not message.fresh:
            self._memory.answer(event.connection, event.request, messages.Enqueued(message.id, number))
        else:
            text = (
                f"job id {message.id} is taken by another job"
                if known_hash != digest
                else f"job id {message.id} was made twice, although it was said to be fresh"
            )
            self._memory.refuse(event.connection, event.request, "conflict", text)
        return True

    def _known(self, id: str, found: Found | None) -> tuple[int, bytes] | None:
        job = self._memory.by_id.get(id) or (found.job if found is not None else None)
        if job is not None:
            return job.number, job.body_hash
        if found is not None and found.remembered is not None:
            return found.remembered.number, found.remembered.body_hash
        return None

    def _take_in(self, event: Received, message: messages.Enqueue, digest: bytes) -> None:
        memory = self._memory
        policy = memory.kind_policy(message.kind)
        queue_name = message.queue or policy.get("queue") or limits.QUEUE_DEFAULT
        if not memory.may_use(queue_name):
            memory.refuse_queue(event.connection, event.request, queue_name)
            return
        queue = memory.queue(queue_name)
        is_behind = bool(queue.parked) and not event.parked_turn
        overflows = is_behind or not queue.has_room(len(message.payload))
        if overflows and not self._overflow(event, message, queue):
            memory.forget_if_empty(queue)
            return
        job = self._job(message, digest, queue)
        if overflows:
            now = memory.now
            job.state, job.reason = _DEAD, f"overflow: queue {queue.name} was full"
            job.finished_at_ms, job.finished_boot_ms = now.wall_ms, now.boot_ms
        memory.create(job, message.payload)
        memory.answer(event.connection, event.request, messages.Enqueued(job.id, job.number))
        if job.state is _READY:
            self._leasing.offer(job)
        elif overflows:
            self._leasing.tell_of_death(job)

    def _overflow(self, event: Received, message: messages.Enqueue, queue: Queue) -> bool:
        """What a full queue does with one more job. True: it is taken in as a dead letter."""
        memory, rules = self._memory, queue.rules
        caller = (event.connection, event.request)
        self._say_full(queue)
        if rules.overflow is Overflow.DEAD and queue.counts[_DEAD] < rules.dead_max:
            return True
        size = len(message.payload)
        if rules.overflow is Overflow.WAIT and message.wait_ms and size <= rules.bytes_max:
            until_ms = event.parked_until_ms or memory.now.mono_ms + message.wait_ms
            if until_ms > memory.now.mono_ms and self._waiting.can_park(size):
                self._waiting.park(event, queue, size, until_ms)
                return False
        waits = rules.overflow is Overflow.WAIT and size <= rules.bytes_max
        detail = {"queue": queue.name, "waits": waits}
        memory.refuse(*caller, "queue_full", _fullness(queue, size), detail)
        return False

    def _say_full(self, queue: Queue) -> None:
        """Log that a queue turns jobs away, once in a while."""
        now_ms, rules = self._memory.now.mono_ms, queue.rules
        if queue.full_said_until_ms > now_ms:
            return
        queue.full_said_until_ms = now_ms + limits.FULL_SAID_MS
        self._memory.log(
            "queue_full",
            queue=queue.name,
            overflow=str(rules.overflow),
            jobs=queue.live_count,
            jobs_max=rules.jobs_max,
            bytes=queue.bytes,
            bytes_max=rules.bytes_max,
        )

    def _job(self, message: messages.Enqueue, digest: bytes, queue: Queue) -> Job:
        memory, now = self._memory, self._memory.now
        known = message.kind in memory.kinds
        policy = memory.kind_policy(message.kind)
        number = memory.next_number()
        of_queue = queue.rules.policy
        expires_ms = message.expires_ms or policy.get("expires_ms") or of_queue.get("expires_ms") or 0
        priority = message.priority
        if priority is None:
            priority = either(policy.get("priority"), of_queue.get("priority")) or 0
        delay_ms = message.delay_ms or 0
        run_at_ms = message.run_at_ms or 0
        waits = delay_ms > 0 or run_at_ms > now.wall_ms
        settled = None not in (message.queue, message.priority, message.expires_ms)
        return Job(
            number=number,
            id=message.id,
            body_hash=digest,
            id_by_caller=not message.fresh,
            kind=message.kind,
            queue=queue.name,
            priority=priority,
            position=number,
            state=_SCHEDULED if waits else _READY,
            resolved=known or settled,
            payload_bytes=len(message.payload),
            headers=message.headers,
            created_at_ms=now.wall_ms,
            epoch=memory.epoch,
            created_boot_ms=now.boot_ms,
            due_boot_ms=now.boot_ms + delay_ms if waits and not run_at_ms else 0,
            delay_ms=delay_ms if waits and not run_at_ms else 0,
            run_at_ms=run_at_ms if waits else 0,
            expires_boot_ms=now.boot_ms + expires_ms if expires_ms else 0,
            expires_ms=expires_ms,
            queue_given=message.queue is not None,
            priority_given=message.priority is not None,
            expires_given=message.expires_ms is not None,
            attempts_max=message.attempts_max,
            crashes_max=message.crashes_max,
            time_limit_ms=message.time_limit_ms,
            lease_ms=message.lease_ms,
            backoff_ms=message.backoff_ms,
            backoff_cap_ms=message.backoff_cap_ms,
        )

    def kind_declared(self, kind: str) -> None:
        """A kind became known: settle queue, priority and expiry of the jobs that waited for it."""
        memory = self._memory
        waited = list(memory.unresolved.get(kind, {}).values())
        left = {job.queue: None for job in waited}
        for job in waited:
            memory.settle(job)
            if job.state is _READY:
                self._leasing.offer(job)
        for queue_name in left:
            self._waiting.room_made(queue_name)

    def time_passed(self) -> None:
        """Jobs whose expiry has passed become dead, those whose time has come ready: a few at a time."""
        memory, now = self._memory, self._memory.now
        for timers, clock_ms, handle in (
            (memory.expiry, now.boot_ms, self._expire),
            (memory.due, now.boot_ms, self._promote),
            (memory.due_by_wall, now.wall_ms, self._promote),
        ):
            for _ in range(limits.DUE_JOBS_STEP):
                number = timers.pop_due(clock_ms)
                if number is None:
                    break
                handle(memory.jobs[number])

    def _expire(self, job: Job) -> None:
        over = self._leasing.expire_if_over(job)
        assert over, "its timer said so"

    def _promote(self, job: Job) -> None:
        job.due_boot_ms = job.delay_ms = job.run_at_ms = 0
        self._memory.move(job, Command.DUE)
        self._leasing.offer(job)
