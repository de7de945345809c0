"""One queue: which of its jobs runs next, how full it is, and who waits for room.

Order within a queue is (priority, lower first; position). Jobs that workers do not know must not
stand in the way of those they do, so each kind has its own line (a heap) and a worker gets the best
head among the lines of its kinds: the same order, restricted to what it can run.

Suspects, which may only run where nothing else does, have lines of their own: they must not stand in the
way of others either.

A job leaves its line lazily, but the head of a line is always a job that is ready, and a line
without ready jobs is gone: kinds that were used once leave nothing behind.
"""

from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush

import attrs

from ...proto.model import State
from ...proto.queuerules import QueueRules
from .events import Received
from .job import Job

LINE_SLACK = 64

SUSPECT = "?"
"""Before the kind in the name of a suspects' line. No kind has such a character."""

# Members by names of their own: in Python 3.11 looking one up in its class costs more than a call.
_DEAD, _LEASED, _READY, _SCHEDULED = State.DEAD, State.LEASED, State.READY, State.SCHEDULED

Caller = tuple[int, int]
"""(connection, request): whom to answer."""

Entry = tuple[int, int, int]
"""(priority, position, number)."""


@attrs.define(eq=False)
class Parked:
    """One enqueue that waits for room in a queue."""

    event: Received
    queue: str
    payload_bytes: int
    deadline_ms: int
    turn: int
    """Order of arrival; kept when it tries, finds no room after all, and waits again."""


class Line:
    """The ready jobs of one kind: a heap, and how many of its entries are no leftovers."""

    __slots__ = ("entries", "ready_count")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.ready_count = 0


class Queue:
    """The live jobs of one queue, by state, and its finished ones as numbers."""

    __slots__ = (
        *("_lines", "_ready", "bytes", "counts", "full_said_until_ms", "has_suspects", "name", "parked"),
        *("paused", "rules"),
    )

    def __init__(self, name: str, rules: QueueRules) -> None:
        self.name = name
        self.rules = rules
        self.paused = False
        self.full_said_until_ms = 0
        """Until then (monotonic) nobody needs to be told again that it is full."""
        self.counts: dict[State, int] = dict.fromkeys(State, 0)
        self.bytes = 0
        """Payload bytes of the live jobs."""
        self.parked: dict[Caller, Parked] = {}
        """Enqueues that wait for room, in order of arrival."""
        self.has_suspects = False
        """Some of the ready jobs are suspects."""
        self._lines: dict[str, Line] = {}
        self._ready: dict[int, tuple[Job, int]] = {}

    @property
    def live_count(self) -> int:
        """Jobs that count against the limit: scheduled, ready and leased."""
        counts = self.counts
        return counts[_SCHEDULED] + counts[_READY] + counts[_LEASED]

    @property
    def is_empty(self) -> bool:
        """Nothing is known of this queue that a new object would not know."""
        return not (self.paused or self.parked or any(self.counts.values()))

    @property
    def is_at_rest(self) -> bool:
        """Nothing of it waits, runs or needs a person."""
        return not (self.paused or self.parked or self.live_count or self.counts[_DEAD])

    def has_room(self, payload_bytes: int) -> bool:
        """Whether one more job of that size fits."""
        rules = self.rules
        return self.live_count < rules.jobs_max and self.bytes + payload_bytes <= rules.bytes_max

    # --- ready jobs ---------------------------------------------------------------------------------

    def add_ready(self, job: Job, since_boot_ms: int) -> None:
        """Put a job that is ready since then into its line."""
        self._ready[job.number] = (job, since_boot_ms)
        name = _line_name(job)
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line()
            self.has_suspects = self.has_suspects or job.suspect
        line.ready_count += 1
        heappush(line.entries, (job.priority, job.position, job.number))
        if len(line.entries) > 2 * line.ready_count + LINE_SLACK:
            # A set, because a job that left and came back has two entries that look alike.
            line.entries = list({entry for entry in line.entries if self._holds(entry)})
            heapify(line.entries)

    def remove_ready(self, job: Job) -> None:
        """The job is no longer ready. Its entry goes now if it is the head, else when it becomes it."""
        del self._ready[job.number]
        name = _line_name(job)
        line = self._lines[name]
        line.ready_count -= 1
        if not line.ready_count:
            del self._lines[name]
            if job.suspect:
                self.has_suspects = any(name.startswith(SUSPECT) for name in self._lines)
            return
        entries = line.entries
        while not self._holds(entries[0]):
            heappop(entries)

    def _holds(self, entry: Entry) -> bool:
        ready = self._ready.get(entry[2])
        return ready is not None and ready[0].position == entry[1] and ready[0].priority == entry[0]

    def best(self, kinds: Collection[str]) -> Job | None:
        """The job that a worker of these kinds gets next, left in its line."""
        lines = self._lines
        # A pool of many kinds and a queue of few, or the other way round: walk the fewer.
        shared = (
            [kind for kind in lines if kind in kinds]
            if len(lines) <= len(kinds)
            else [kind for kind in kinds if kind in lines]
        )
        if not shared:
            return None
        head = min([lines[kind].entries[0] for kind in shared])
        return self._ready[head[2]][0]

    def best_suspect(self, kinds: Collection[str]) -> Job | None:
        """The suspect that a worker of these kinds gets next. Ask only if there are any."""
        return self.best([SUSPECT + kind for kind in kinds])

    @property
    def entry_count(self) -> int:
        """Entries of all lines, leftovers included."""
        return sum(len(line.entries) for line in self._lines.values())

    def oldest_ready(self) -> tuple[Job, int] | None:
        """The job that has been ready longest, and since when (boot clock)."""
        return next(iter(self._ready.values()), None)

    @property
    def ready_kinds(self) -> Iterable[str]:
        """Kinds that ready jobs of this queue have."""
        return {name.removeprefix(SUSPECT) for name in self._lines} if self.has_suspects else self._lines


def _line_name(job: Job) -> str:
    return SUSPECT + job.kind if job.suspect else job.kind
