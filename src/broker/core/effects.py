"""What the core wants done: effects, in the imperative, and the changes for the journal.

Effects of a step wait for the commit of the batch that the step belongs to, because any of them
may show a change. Only `now=True` ones may leave at once: they show nothing that could be undone.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from ...proto.messages import Message, Refusal
from .events import Received
from .job import Image


@attrs.define
class Answer:
    """Answer one request. `patient`: nobody is held up by it, so it may wait for a commit with more in it."""

    connection: int
    request: int
    message: Message
    now: bool = False
    patient: bool = False


@attrs.define
class Refuse:
    """Answer one request with a refusal."""

    connection: int
    request: int
    refusal: Refusal
    now: bool = False


@attrs.define
class Push:
    """Send a message nobody asked for. A `work.Job` has an empty payload: the driver fills it in."""

    connection: int
    message: Message


@attrs.define
class Close:
    """End a connection after what was sent to it."""

    connection: int
    reason: str


@attrs.define
class KillPeer:
    """SIGKILL the peer process of a connection by the broker's own pidfd, its supervisor being silent."""

    connection: int


@attrs.define
class LookAgain:
    """The look-up behind this event is out of date: repeat it, then step the event anew."""

    event: Received


@attrs.define
class Log:
    """One decision worth a line in the log: an event name and fields; never payloads."""

    event: str
    fields: dict[str, Any]


Effect = Answer | Refuse | Push | Close | KillPeer | LookAgain | Log


OutcomeRow = tuple[Any, ...]
OUTCOME_COLUMNS: tuple[str, ...] = (
    "number",
    "attempt",
    "outcome",
    "reason",
    "report",
    "token_epoch",
    "token_counter",
    "worker",
    "started_at_ms",
    "ended_at_ms",
    "duration_ms",
    "signal",
    "status",
    "memory_peak_bytes",
    "cpu_ms",
    "result",
    "output",
)
"""One row for each attempt that ended, in this order; `signal`, `status`, `result` and `output` may be
None."""


@attrs.define
class Changes:
    """Everything decided since the last batch, for one transaction. Of one job only the last image."""

    images: Sequence[Image] = ()
    """Insert or replace, by number."""
    payloads: Sequence[tuple[int, bytes]] = ()
    """Insert only: (number, payload)."""
    outcomes: Sequence[OutcomeRow] = ()
    """Insert only."""
    deleted: Sequence[tuple[int, str, bytes, int]] = ()
    """(number, id, body hash, kept until): delete the job's rows, and remember the id until that
    instant of this start's boot clock; 0 forgets it at once."""
    kinds: Sequence[tuple[str, str, dict[str, Any]]] = ()
    """(kind, pool, policy): insert or replace."""
    kinds_forgotten: Sequence[str] = ()
    """Delete; none of them is among `kinds`."""
    paused: Sequence[tuple[str, bool]] = ()
    """(queue or '' for all, paused): insert or delete."""
    sequence: int | None = None
    """Up to where the counter behind numbers and positions is reserved, if that changed."""

    def __bool__(self) -> bool:
        return bool(
            self.images
            or self.payloads
            or self.outcomes
            or self.deleted
            or self.kinds
            or self.kinds_forgotten
            or self.paused
            or self.sequence is not None
        )
