"""What really happened in a run, told from outside: the material of the oracle.

Nobody asks the broker for any of it, except at the end. Requests and answers are noted where a peer sends
or gets them, deliveries where they leave the broker, handlers where they start and stop. Records are in
the order in which they happened. A run has those that its witnesses can see: in a simulation nearly all,
of real processes what each of them wrote down (`notebook`).
"""

import hashlib
from collections import deque
from typing import Any, NamedTuple

Key = tuple[int, int]
"""A token."""


class Asked(NamedTuple):
    """A client is about to send an enqueue. It may never get an answer."""

    at_ms: int
    id: str
    body: tuple[Any, ...]


class Enqueued(NamedTuple):
    """A client got an answer to an enqueue: `number` when it was stored, else the `code` of the refusal."""

    at_ms: int
    id: str
    body: tuple[Any, ...]
    fresh: bool
    number: int | None
    code: str = ""


class Pushed(NamedTuple):
    """A job left the broker for a worker, which may run it for `limit_ms`."""

    at_ms: int
    job_id: str
    token: Key
    worker: str
    attempt: int
    limit_ms: int = 3_600_000


class Started(NamedTuple):
    """A handler began. `supervised`: somebody kills, reaps and sweeps for its worker."""

    at_ms: int
    job_id: str
    token: Key
    worker: str
    supervised: bool


class Stopped(NamedTuple):
    """Nothing of an attempt runs any more: its handler returned, or its process tree is gone."""

    at_ms: int
    token: Key


class Reached(NamedTuple):
    """A worker's ack, nack or release came to the broker."""

    at_ms: int
    worker: str
    token: Key
    op: str


class Recalled(NamedTuple):
    """A supervisor's word came that its worker begins nothing up to `through` that had not begun by `started`."""

    at_ms: int
    worker: str
    through: Key
    started: Key | None


class Confirmed(NamedTuple):
    """A worker got `done` for its ack, nack or release."""

    at_ms: int
    worker: str
    token: Key
    op: str


class Told(NamedTuple):
    """A client was told that a job is in a final state."""

    at_ms: int
    job_id: str
    state: str


class Died(NamedTuple):
    """A worker's process ended."""

    at_ms: int
    worker: str


class Silent(NamedTuple):
    """A worker cannot be heard from now on: stopped, or without a connection."""

    at_ms: int
    worker: str


class Heard(NamedTuple):
    """It can again."""

    at_ms: int
    worker: str


class Dropped(NamedTuple):
    """A finished job was deleted: a person asked for it, or its retention was over."""

    at_ms: int
    job_id: str


class Crashed(NamedTuple):
    """The broker died."""

    at_ms: int


class Calm(NamedTuple):
    """The last fault is over: everything is to be finished `bound_ms` from now."""

    at_ms: int
    bound_ms: int


class Over(NamedTuple):
    """The lease of an attempt is over: after `grace_ms` more nothing of it may run."""

    at_ms: int
    token: Key
    grace_ms: int


class Retried(NamedTuple):
    """An attempt began after one that failed, at `failed_ms`, as the `charged`th charged one.

    `late_ms` is how long a job that is due may have had to wait for a worker.
    """

    at_ms: int
    job_id: str
    failed_ms: int
    charged: int
    base_ms: int
    cap_ms: int
    late_ms: int


class Sampled(NamedTuple):
    """Something that has a cap was measured, like `broker memory bytes`."""

    at_ms: int
    what: str
    value: int
    most: int


class Logged(NamedTuple):
    """The broker or a pool wrote an event of this name into its log, about a job or about none."""

    at_ms: int
    event: str
    job_id: str


class OnRecord(NamedTuple):
    """How an attempt ended, as the journal has it. Instants are of the wall clock."""

    token: Key
    outcome: str
    reason: str
    started_ms: int = 0
    ended_ms: int = 0


class Row(NamedTuple):
    """One job at the end, as the journal has it, with the limits that held for it.

    `attempts` are those on record, oldest first; None if nobody looked.
    """

    id: str
    number: int
    queue: str
    state: str
    charged: int
    crashes: int
    attempts_max: int
    crashes_max: int
    attempts: tuple[OnRecord, ...] | None = None


class Ended(NamedTuple):
    """The end of the run: every row of the journal, and what the broker counts by (queue, state)."""

    at_ms: int
    rows: tuple[Row, ...]
    counts: dict[tuple[str, str], int]


Record = (
    Asked
    | Enqueued
    | Pushed
    | Started
    | Stopped
    | Reached
    | Recalled
    | Confirmed
    | Told
    | Died
    | Silent
    | Heard
    | Dropped
    | Crashed
    | Calm
    | Over
    | Retried
    | Sampled
    | Logged
    | Ended
)

LAST_SHOWN = 30
LINE_MAX = 240


class History:
    """The records of a run, and a running hash of everything that was noted."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last: deque[str] = deque(maxlen=LAST_SHOWN)
        self._hash = hashlib.sha256()

    def add(self, record: Record) -> None:
        """One thing that happened."""
        self.records.append(record)
        self.note(record.at_ms, repr(record))

    def note(self, at_ms: int, text: str) -> None:
        """A line for people and for the hash; the oracle does not read it."""
        line = f"{at_ms:>8} {text}"
        self.last.append(line[:LINE_MAX])
        self._hash.update(line.encode())

    @property
    def trace_hash(self) -> str:
        """The same for two runs only if they did the same."""
        return self._hash.hexdigest()
