"""Messages of clients and operators, and the answers: named tuples whose order is the wire's order.

A message *is* its array: the frame of `message` is `[op, request id, *message]`, and a decoded
array becomes one by `cls(*fields)`. So there is no conversion on the hot path, and named access
everywhere else. New fields are only ever appended, with a default; a peer that does not know them
leaves them out or ignores them. `ops.py` says which values a field may hold.

The table `OPS` at the end has the number of each request and the class of its answer, for a client
that does not load `ops.py`; `work.OPS` has the rest.

Durations are milliseconds, `_at_ms` are milliseconds since 1970 by the wall clock, priorities run
lower first. Messages of workers and supervisors are in `work.py`, which a client never loads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Token = Sequence[int]
"""`[epoch, counter]` on the wire. Inside a process use `tuple(token)`: it is the lease's key."""

Message = tuple[Any, ...]
"""Any message, where a signature does not care which."""


# --- answers, for every role ---------------------------------------------------------------------


class Refusal(NamedTuple):
    """The answer to a request that was refused, or (request id 0) to bytes that were no request."""

    code: str
    message: str
    detail: Mapping[str, Any] = {}


class Hello(NamedTuple):
    """Who is there. Optional for a client; first and once for a worker; a supervisor says `pool`.

    `identity` is `[boot id, pid namespace, pid, start ticks, nonce]` of a worker process, `ticket`
    the supervisor's 16 random bytes, `held` a list of `[epoch, counter, phase]` with the phase
    `running`, `unstarted` or `finished` (its ack or nack follows at once). `queues` are those that a
    worker takes jobs from, `[name, weight]` each: in this order if all weights are 0; none: all.
    `prefetch` is how many jobs a pool's worker with one slot takes ahead of the one that it runs.
    """

    version: int
    role: str
    name: str = ""
    identity: Sequence[Any] = ()
    ticket: bytes = b""
    kinds: Sequence[str] = ()
    slots: int = 0
    held: Sequence[Sequence[Any]] = ()
    queues: Sequence[Sequence[Any]] = ()
    prefetch: int = 0


class Welcome(NamedTuple):
    """Answer to `hello` and `pool`. `lost` are the held tokens that are no longer the worker's."""

    version: int
    epoch: int
    heartbeat_ms: int
    frame_bytes_max: int
    payload_bytes_max: int
    result_bytes_max: int
    lost: Sequence[Token] = ()


# --- clients and operators -------------------------------------------------------------------------


class Enqueue(NamedTuple):
    """Store a job. The answer comes after the synced commit.

    `fresh` says that the id was made just now by `uuid7` and never sent before: no look-up on disk
    is needed, and a clash is a conflict. A repeat of the same request must not say so.
    """

    id: str
    kind: str
    payload: bytes
    fresh: bool = False
    queue: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    run_at_ms: int | None = None
    expires_ms: int | None = None
    attempts_max: int | None = None
    crashes_max: int | None = None
    time_limit_ms: int | None = None
    lease_ms: int | None = None
    backoff_ms: int | None = None
    backoff_cap_ms: int | None = None
    headers: Mapping[str, str] | None = None
    wait_ms: int | None = None


class Enqueued(NamedTuple):
    """The same for every repeat of the same request."""

    id: str
    number: int


class Cancel(NamedTuple):
    id: str


class Cancelled(NamedTuple):
    """`state` is `cancelled` (nothing of it runs), or `cancelling` (its process is being ended)."""

    id: str
    state: str


class Kick(NamedTuple):
    """Revive a dead job by `id`, or up to `limit` dead jobs of `queue` (oldest first)."""

    id: str | None = None
    queue: str | None = None
    limit: int = 1000


class Drop(NamedTuple):
    """Delete a finished job by `id`, or up to `limit` dead jobs of `queue`. Its id stays remembered."""

    id: str | None = None
    queue: str | None = None
    limit: int = 1000


class Counted(NamedTuple):
    """How many jobs a `kick` or `drop` touched."""

    job_count: int


class Show(NamedTuple):
    """Everything about one job; `payload` also sends its payload."""

    id: str
    payload: bool = False


class Shown(NamedTuple):
    job: Mapping[str, Any]


class Jobs(NamedTuple):
    """A page of jobs by number, those after `after`."""

    queue: str | None = None
    state: str | None = None
    kind: str | None = None
    after: int = 0
    limit: int = 100


class JobsPage(NamedTuple):
    """`after` continues the listing; 0 when this was the last page."""

    jobs: Sequence[Mapping[str, Any]]
    after: int


class Status(NamedTuple):
    pass


class StatusReport(NamedTuple):
    status: Mapping[str, Any]


class Why(NamedTuple):
    id: str


class Because(NamedTuple):
    """`state`, and every reason why the job is there and not running, most important first."""

    id: str
    state: str
    reasons: Sequence[str]


class Wait(NamedTuple):
    """Answered when the job is done, dead or cancelled, or after `timeout_ms` with its state by then."""

    id: str
    timeout_ms: int | None = None


class Waited(NamedTuple):
    id: str
    state: str
    outcome: str | None
    reason: str
    result: bytes | None
    attempt: int


STDOUT = 1
STDERR = 2
"""Streams of a program, by the numbers that descriptors have."""


class Follow(NamedTuple):
    """What a running job says. Answered when there is more than so much of stdout and of stderr of that attempt,
    when the job is in a final state and there is no more, or after `timeout_ms`.

    Counts for its connection, until that ends or the end of the job was told. `lossless`: what was not had is not
    dropped; the program waits instead. `tied`: the job is cancelled when the connection ends before it. `awaited`: the
    job may be unknown still.
    """

    id: str
    attempt: int = 0
    stdout: int = 0
    stderr: int = 0
    timeout_ms: int | None = None
    lossless: bool = False
    tied: bool = False
    awaited: bool = False


class Followed(NamedTuple):
    """`pieces` are `[stream, offset, bytes]` of `attempt`, stream 1 being stdout and 2 stderr. What lies between an
    offset and what was had is lost. `state` is the final one, when there is no more.
    """

    id: str
    state: str | None
    attempt: int
    pieces: Sequence[Sequence[Any]]


class Pause(NamedTuple):
    """No more jobs of `queue` (or of any queue) are handed out until `resume`; survives a restart."""

    queue: str | None = None


class Resume(NamedTuple):
    queue: str | None = None


class Drain(NamedTuple):
    """Hand out no more jobs; answered when none is running, or after `timeout_ms`. `resume` ends it."""

    timeout_ms: int | None = None


class Drained(NamedTuple):
    leased_count: int


class Snapshot(NamedTuple):
    """Write a consistent copy of the journal to `snapshots/<name>.db` in the state directory."""

    name: str


class SnapshotWritten(NamedTuple):
    path: str
    size_bytes: int


class Help(NamedTuple):
    pass


class HelpText(NamedTuple):
    ops: Mapping[str, Any]


class Done(NamedTuple):
    """The answer that carries nothing but success."""


OPS: dict[type[Any], tuple[int, type[Any] | None]] = {
    Hello: (2, Welcome),
    Help: (3, HelpText),
    Enqueue: (10, Enqueued),
    Cancel: (11, Cancelled),
    Kick: (12, Counted),
    Drop: (13, Counted),
    Show: (14, Shown),
    Jobs: (15, JobsPage),
    Status: (16, StatusReport),
    Why: (17, Because),
    Wait: (18, Waited),
    Pause: (19, Done),
    Resume: (20, Done),
    Drain: (21, Drained),
    Snapshot: (22, SnapshotWritten),
    Follow: (27, Followed),
}
"""Number on the wire and class of the answer. 23 to 26 are kept for move, result, watch and reload.

The name of an op is the name of its class in lower case. Numbers are below 128, so that one byte
of a frame says which limits hold for it."""

ANSWER = 0
ERROR = 1
"""Numbers of the two answers: `[0, request id, fields...]`, `[1, request id, code, message, detail]`."""
