"""Everything the core holds: jobs, queues, kinds, counters, and what changed since the last batch.

The one place where indexes are kept. A job enters by `admit`, moves by `move` and leaves memory
when it reaches a final state; recovery admits jobs by the same code, so a restored broker and one
that lived through it hold the same.

Finished jobs are on disk only. `departed` remembers for a while which ids left memory at which
step, so that a look-up that was under way at that moment is known to be out of date.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...proto import limits
from ...proto.messages import Message, Refusal
from ...proto.model import FINAL_STATES, State
from . import effects as fx
from .events import Now
from .freshness import FreshIds
from .job import Image, Job, image
from .lifecycle import Command, target
from .queues import Queue
from .rules import Policy, Rules, own_policy, settle
from .timers import Timers

POLICIES_KEPT = 1024

NUMBERS_RESERVED = 1000
"""So many numbers ahead the counter is written down: a page less in almost every commit. A start of the
broker goes on behind what was reserved, so a crash leaves a gap of that size."""

# Members by names of their own: in Python 3.11 looking one up in its class costs more than a call.
_LEASED, _READY, _SCHEDULED = State.LEASED, State.READY, State.SCHEDULED


class Memory:
    """The state of the queue. `now` is the time of the step under way."""

    def __init__(self, rules: Rules, epoch: int, now: Now) -> None:
        self.rules = rules
        self.epoch = epoch
        self.now = now
        self.steps = 0
        self.sequence = 0
        self.jobs: dict[int, Job] = {}
        self.by_id: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.active: dict[str, Queue] = {}
        """Queues with ready jobs, in the order of their turns."""
        self.kinds: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """kind to (pool that declared it, policy)."""
        self.unresolved: dict[str, dict[int, Job]] = {}
        """Live jobs whose kind nobody has declared yet."""
        self.paused_all = False
        self.draining = False
        self.stopping = False
        self.storage_full = False
        self.ids_kept = 0
        self.retries: dict[str, int] = {}
        """By queue: failures since `figures` were last taken after which a job is to run again."""
        self.departed: dict[str, int] = {}
        self.fresh = FreshIds(now)
        self._policies: dict[tuple[str, str], Policy] = {}
        """(kind, queue) to the policy of jobs that say nothing themselves."""
        self.effects: list[fx.Effect] = []
        self.due = Timers(self._is_due_at)
        self.due_by_wall = Timers(self._is_due_at_wall)
        self.expiry = Timers(self._expires_at)
        self._changed: dict[int, Job] = {}
        self._payloads: list[tuple[int, bytes]] = []
        self._outcomes: list[fx.OutcomeRow] = []
        self._deleted: list[tuple[int, str, bytes, int]] = []
        self._kinds: dict[str, tuple[str, str, dict[str, Any]]] = {}
        self._kinds_forgotten: set[str] = set()
        self._kinds_looked_ms = now.mono_ms
        self._paused: dict[str, bool] = {}
        self._sequence_reserved = 0

    # --- effects ---------------------------------------------------------------------------------

    def answer(self, connection: int, request: int, message: Message, *, now: bool = False) -> None:
        """Answer a request after the commit, or at once if it shows nothing that could be undone."""
        self.effects.append(fx.Answer(connection, request, message, now))

    def refuse(
        self, connection: int, request: int, code: str, text: str, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Refuse a request, after the commit of what the refusal shows."""
        self.effects.append(fx.Refuse(connection, request, Refusal(code, text, detail or {})))

    def count_retry(self, queue_name: str) -> None:
        """An attempt has failed, and its job is to run again."""
        self.retries[queue_name] = self.retries.get(queue_name, 0) + 1

    def log(self, event: str, **fields: Any) -> None:
        """One decision for the log."""
        self.effects.append(fx.Log(event, fields))

    # --- numbers, queues, kinds -----------------------------------------------------------------

    def next_number(self) -> int:
        """The next number or position; never given twice, also across restarts."""
        self.sequence += 1
        return self.sequence

    def restore_sequence(self, sequence: int) -> None:
        """The counter as the journal has it."""
        self.sequence = self._sequence_reserved = sequence

    def restore_paused(self, name: str) -> None:
        """A pause that outlived a restart."""
        if name:
            self.queue(name).paused = True
        else:
            self.paused_all = True

    def queue(self, name: str) -> Queue:
        """The queue of that name, made on first use."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, self.rules.queue(name))
        return queue

    def may_use(self, name: str) -> bool:
        """Whether there is a queue of that name, or room for one more.

        There always is for `default` and those that are configured, whoever filled the rest.
        """
        return (
            name in self.queues
            or len(self.queues) < limits.QUEUES_MAX
            or name == limits.QUEUE_DEFAULT
            or name in self.rules.queues
        )

    def refuse_queue(self, connection: int, request: int, name: str) -> None:
        """Refuse a request that would need a queue which may not be used."""
        text = f"queue {name} would be one more than {limits.QUEUES_MAX} queues"
        self.refuse(connection, request, "queue_full", text, {"waits": False})

    def _settled_queue(self, job: Job) -> Queue:
        """The queue that a kind has chosen for a job that exists already, also if it is one too many.

        To leave the job where it was could mean that no worker takes it. There are never more of those
        than kinds: jobs that are enqueued later know their queue, and are refused.
        """
        if not self.may_use(job.queue):
            self.log("queues_full", burst=1, queue=job.queue, kind=job.kind, queues=len(self.queues))
        return self.queue(job.queue)

    def forget_if_empty(self, queue: Queue) -> None:
        """Queue names that were used once must not stay for ever."""
        if queue.is_empty:
            self.queues.pop(queue.name, None)

    def kind_policy(self, kind: str) -> Mapping[str, Any]:
        """What a kind declared; empty if it is unknown."""
        declared = self.kinds.get(kind)
        return declared[1] if declared is not None else {}

    def policy(self, job: Job) -> Policy:
        """The policy of a job, from enqueue, kind, queue or default."""
        key = (job.kind, job.queue)
        base = self._policies.get(key)
        if base is None:
            if len(self._policies) >= POLICIES_KEPT:
                self._policies.clear()
            base = self._policies[key] = self.rules.policy(self.kind_policy(job.kind), job.queue)
        return own_policy(job, base)

    @property
    def policies_kept(self) -> int:
        """How many policies are at hand without being put together anew."""
        return len(self._policies)

    def declare_kind(self, kind: str, pool: str, policy: dict[str, Any]) -> None:
        """A pool declared a kind: journalled, and used from now on."""
        self.kinds[kind] = (pool, policy)
        self._kinds[kind] = (kind, pool, policy)
        self._kinds_forgotten.discard(kind)
        self._policies.clear()

    def may_declare(self, kinds: Collection[str], pools: Iterable[Collection[str]]) -> bool:
        """Whether there is room for those of the kinds that are new; `pools` are the kinds of each known pool.

        If there is none, kinds are forgotten that neither a pool nor a live job names, now and then.
        """
        new = sum(kind not in self.kinds for kind in kinds)
        if not new or len(self.kinds) + new <= limits.KINDS_MAX:
            return True
        if self.now.mono_ms - self._kinds_looked_ms < limits.KINDS_LOOKED_MS:
            return False
        self._kinds_looked_ms = self.now.mono_ms
        needed = {job.kind for job in self.jobs.values()}.union(kinds, *pools)
        for kind in [kind for kind in self.kinds if kind not in needed]:
            del self.kinds[kind]
            self._kinds.pop(kind, None)
            self._kinds_forgotten.add(kind)
        self._policies.clear()
        return len(self.kinds) + new <= limits.KINDS_MAX

    def set_paused(self, name: str, paused: bool) -> None:
        """Pause or resume one queue; the empty name stands for all."""
        if name:
            queue = self.queue(name)
            queue.paused = paused
            self.forget_if_empty(queue)
        else:
            self.paused_all = paused
        self._paused[name] = paused

    # --- jobs -------------------------------------------------------------------------------------

    def admit(self, job: Job, ready_since_boot_ms: int) -> None:
        """Take a job into memory, in whatever live state it is; of a final one only the count."""
        queue = self.queue(job.queue)
        queue.counts[job.state] += 1
        if job.state in FINAL_STATES:
            return
        self.jobs[job.number] = job
        self.by_id[job.id] = job
        queue.bytes += job.payload_bytes
        if not job.resolved:
            self.unresolved.setdefault(job.kind, {})[job.number] = job
        self._enter_state(job, queue, ready_since_boot_ms)

    def create(self, job: Job, payload: bytes) -> None:
        """A new job: admitted, and written with its payload."""
        self.admit(job, self.now.boot_ms)
        self.fresh.take(job.id, self.now)
        self._changed[job.number] = job
        self._payloads.append((job.number, payload))
        if job.state in FINAL_STATES:
            self._note_departed(job.id)

    def revive(self, job: Job) -> None:
        """A dead job from disk becomes live again: it is counted there no longer, and admitted here."""
        queue = self.queue(job.queue)
        queue.counts[job.state] -= 1
        job.state = target(job.state, Command.KICKED)
        if not job.resolved and job.kind in self.kinds:
            # The kind was declared while the job was dead.
            settle(job, self.kind_policy(job.kind), self.rules)
            self._settled_queue(job)
        self.admit(job, self.now.boot_ms)
        self._changed[job.number] = job
        self.forget_if_empty(queue)

    def move(self, job: Job, command: Command) -> None:
        """Move a live job by the lifecycle table and keep every index right."""
        queue = self.queues[job.queue]
        state = target(job.state, command)
        self._leave_state(job, queue)
        job.state = state
        queue.counts[state] += 1
        self._changed[job.number] = job
        if state in FINAL_STATES:
            self._depart(job, queue)
        elif state is not _LEASED:
            self._enter_state(job, queue, self.now.boot_ms)

    def touch(self, job: Job) -> None:
        """A field of a live job changed without moving it."""
        self._changed[job.number] = job

    def settle(self, job: Job) -> None:
        """The kind of a live job is known now: it may belong into another queue, at its old position."""
        old = self.queues[job.queue]
        self._leave_state(job, old)
        old.bytes -= job.payload_bytes
        self._forget_unresolved(job)
        settle(job, self.kind_policy(job.kind), self.rules)
        new = self._settled_queue(job)
        new.bytes += job.payload_bytes
        new.counts[job.state] += 1
        self._enter_state(job, new, self.now.boot_ms)
        self._changed[job.number] = job
        self.forget_if_empty(old)

    def delete(
        self, number: int, id: str, body_hash: bytes, queue_name: str, state: State, kept_until_boot_ms: int
    ) -> None:
        """Remove a finished job from the journal; its id stays remembered until then (0: not at all)."""
        queue = self.queue(queue_name)
        queue.counts[state] -= 1
        self._deleted.append((number, id, body_hash, kept_until_boot_ms))
        self.ids_kept += kept_until_boot_ms > 0
        self._note_departed(id)
        self.forget_if_empty(queue)

    def write_outcome(self, row: fx.OutcomeRow) -> None:
        """One attempt has ended."""
        self._outcomes.append(row)

    def _enter_state(self, job: Job, queue: Queue, ready_since_boot_ms: int) -> None:
        if job.state is _READY:
            queue.add_ready(job, ready_since_boot_ms)
            if queue.name not in self.active:
                self.active[queue.name] = queue
        elif job.state is _SCHEDULED:
            if job.run_at_ms:
                self.due_by_wall.set(job.run_at_ms, job.number)
            else:
                self.due.set(job.due_boot_ms, job.number)
        if job.expires_boot_ms and job.state is not _LEASED:
            self.expiry.set(job.expires_boot_ms, job.number)

    def _leave_state(self, job: Job, queue: Queue) -> None:
        queue.counts[job.state] -= 1
        if job.state is _READY:
            queue.remove_ready(job)
            if not queue.counts[_READY]:
                del self.active[queue.name]

    def _depart(self, job: Job, queue: Queue) -> None:
        del self.jobs[job.number]
        del self.by_id[job.id]
        queue.bytes -= job.payload_bytes
        if not job.resolved:
            self._forget_unresolved(job)
        self._note_departed(job.id)

    def _note_departed(self, id: str) -> None:
        # To the end also if it is there already: `trim_departed` stops at the first that is too new.
        self.departed.pop(id, None)
        self.departed[id] = self.steps

    def _forget_unresolved(self, job: Job) -> None:
        waiting = self.unresolved[job.kind]
        del waiting[job.number]
        if not waiting:
            del self.unresolved[job.kind]

    def _is_due_at(self, instant: int, number: int) -> bool:
        job = self.jobs.get(number)
        return (
            job is not None and job.state is _SCHEDULED and job.due_boot_ms == instant and not job.run_at_ms
        )

    def _is_due_at_wall(self, instant: int, number: int) -> bool:
        job = self.jobs.get(number)
        return job is not None and job.state is _SCHEDULED and job.run_at_ms == instant

    def _expires_at(self, instant: int, number: int) -> bool:
        job = self.jobs.get(number)
        return job is not None and job.state is not _LEASED and job.expires_boot_ms == instant

    # --- batches ----------------------------------------------------------------------------------

    def _reserved(self) -> int | None:
        """What the counter is to be on disk, if that has to change."""
        if self.sequence <= self._sequence_reserved:
            return None
        self._sequence_reserved = self.sequence + NUMBERS_RESERVED
        return self._sequence_reserved

    def take_changes(self) -> fx.Changes:
        """Everything since the last call, for one transaction; of each job only its last image."""
        images: list[Image] = [image(job) for job in self._changed.values()]
        changes = fx.Changes(
            images=images,
            payloads=self._payloads,
            outcomes=self._outcomes,
            deleted=self._deleted,
            kinds=list(self._kinds.values()),
            kinds_forgotten=list(self._kinds_forgotten),
            paused=list(self._paused.items()),
            sequence=self._reserved(),
        )
        self._changed = {}
        self._payloads = []
        self._outcomes = []
        self._deleted = []
        self._kinds = {}
        self._kinds_forgotten = set()
        self._paused = {}
        for timers in (self.due, self.due_by_wall, self.expiry):
            timers.sweep(len(self.jobs))
        return changes
