"""Messages of workers and supervisors; see `messages.py` for how a message is its array.

A worker says `hello`, gets `job` pushed, answers `ack`, `nack` or `release`. A supervisor says
`pool`, beats for the workers it sees alive, reports each that `exited`, and gets `kill` pushed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .messages import Done, Token, Welcome


class Job(NamedTuple):
    """Pushed to a worker with a free slot: one attempt, its to run until it answers the token.

    `attempt` counts from 1. `lease_ms` is how long the lease lasts without a heartbeat. `follow` is as `policy` of
    `stream`, null if nobody follows it.
    """

    token: Token
    id: str
    number: int
    kind: str
    queue: str
    attempt: int
    payload: bytes
    time_limit_ms: int
    lease_ms: int
    enqueued_at_ms: int
    headers: Mapping[str, str] | None = None
    follow: str | None = None


class Ack(NamedTuple):
    """The job is finished. Kept by the worker and repeated until it is answered.

    `output` is the end of what the attempt printed and logged, if that is to be kept.
    """

    token: Token
    result: bytes | None = None
    duration_ms: int = 0
    output: str | None = None


class Nack(NamedTuple):
    """The attempt failed: `outcome` is error, permanent, timeout, memory, crash or cancelled.

    `signal` to `cpu_ms` are of an attempt that had a process of its own, which ended without an answer.
    `output` is as in `ack`.
    """

    token: Token
    outcome: str
    reason: str
    report: str = ""
    after_ms: int | None = None
    duration_ms: int = 0
    signal: int | None = None
    status: int | None = None
    memory_peak_bytes: int = 0
    cpu_ms: int = 0
    output: str | None = None


class Release(NamedTuple):
    """Given back without fault: `reason` is `not_started` (was no delivery), `released`, `shutdown`."""

    token: Token
    reason: str


class Progress(NamedTuple):
    """How far a running attempt is: `done` of `total`, and a text for people. Replaces what was said before.

    The one request that is never answered, so that a worker which is busy has nothing to read. It may
    be dropped on the way; the broker keeps the last one in memory, as long as the attempt runs.
    """

    token: Token
    done: int | None = None
    total: int | None = None
    text: str = ""


KEEP = "keep"
BLOCK = "block"
"""What a worker does with output that nobody takes: drop the oldest, or have the program wait."""


class Output(NamedTuple):
    """A chunk of what an attempt says, while somebody follows it. Answered when it was taken.

    `stream` is 1 for stdout, 2 for stderr, `offset` how much of it came before. One chunk of each stream at a time.
    """

    token: Token
    stream: int
    offset: int
    data: bytes


class Passed(NamedTuple):
    """`is_followed` False: nobody wants more of it, until `stream` is pushed."""

    is_followed: bool


class Stream(NamedTuple):
    """Pushed to a worker: send `output` of an attempt. `policy` says what becomes of what is not taken: `keep` its
    end, and drop what is older, or `block`, have the program wait. May come again with another policy.
    """

    token: Token
    policy: str


class Heartbeat(NamedTuple):
    """A worker beats for its `tokens`; a supervisor for `workers`, the nonces of those it sees alive."""

    tokens: Sequence[Token] = ()
    workers: Sequence[str] = ()


class Wishes(NamedTuple):
    """What the broker wants of a worker: take nothing new, end, or stop these attempts.

    `heartbeat_ms` tells a supervisor a new rhythm (0: as before), since a shorter lease may be in use.
    """

    quiet: bool = False
    stop: bool = False
    cancel: Sequence[Token] = ()
    heartbeat_ms: int = 0


# --- supervisors -----------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """A supervisor's first message, also after a reconnect; and again when something of it has changed.

    `kinds` is a list of maps: `kind`, and optionally queue, priority, expires_ms, attempts_max,
    crashes_max, time_limit_ms, lease_ms, backoff_ms, backoff_cap_ms, dead_kind. `workers` are the nonces of
    the live ones; those of this ticket that are not listed have ended and were reported or never ran.

    `code` names the code that serves. The last three are of the last reload that was asked for: loading,
    starting, done or failed; when it began, on the monotonic clock; why it failed, with a traceback.
    """

    version: int
    name: str
    ticket: bytes
    identity: Sequence[Any]
    kinds: Sequence[Mapping[str, Any]]
    workers: Sequence[str] = ()
    code: str = ""
    reload_state: str | None = None
    reload_mono_ms: int = 0
    reload_error: str = ""


class Exited(NamedTuple):
    """A worker process has ended and been reaped, and its tree swept. Repeated until answered.

    `tokens` are what its start page held: the attempts that were running in it, none between jobs.
    Exactly one of `status` (exit code) and `signal` is set, or neither when the status cannot be had.
    `kill_token` is the attempt a SIGKILL of the supervisor was meant for, `shutdown` that the end was
    not the job's doing, `over_memory` that it died of its job's memory limit.
    """

    worker: str
    tokens: Sequence[Token]
    status: int | None
    signal: int | None
    kill_token: Token | None = None
    shutdown: bool = False
    swept: bool = True
    memory_peak_bytes: int = 0
    cpu_ms: int = 0
    over_memory: bool = False


class Kill(NamedTuple):
    """Pushed to a supervisor: end this attempt. `reason` is timeout, cancelled or lost."""

    worker: str
    token: Token
    reason: str
    grace_ms: int


class Recall(NamedTuple):
    """Pushed to a supervisor: its worker shall begin no job up to the token `through` that it has not begun yet."""

    worker: str
    through: Token


class Recalled(NamedTuple):
    """That is so. `started` is the last token that had begun by then, null if nothing runs.

    What was sent up to `through` and comes after `started` is the broker's again.
    """

    worker: str
    through: Token
    started: Token | None = None


OPS: dict[type[Any], tuple[int, type[Any] | None]] = {
    Job: (40, None),
    Ack: (41, Done),
    Nack: (42, Done),
    Release: (43, Done),
    Heartbeat: (44, Wishes),
    Progress: (45, None),
    Output: (46, Passed),
    Stream: (47, None),
    Pool: (50, Welcome),
    Exited: (51, Done),
    Kill: (52, None),
    Recall: (53, None),
    Recalled: (54, Done),
}
"""As `messages.OPS`; without an answer: pushed by the broker, or `progress`."""
