"""What the core is told: events, in the past tense, and the time at which each is handled.

Connections are small integers that the listener hands out and never reuses within one start.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from ...proto.messages import Message
from .job import Job


class Now(NamedTuple):
    """The time, read once for each event. All are milliseconds.

    `mono_ms` stops while the host sleeps (leases, limits, graces); `boot_ms` counts on (delays,
    backoff, expiry, retention); `wall_ms` since 1970 may step (only `run_at` and display).
    """

    mono_ms: int
    boot_ms: int
    wall_ms: int


@attrs.frozen
class Remembered:
    """What the journal knows of an id whose row retention has removed."""

    id: str
    number: int
    body_hash: bytes


@attrs.frozen
class Found:
    """What a look-up by id found on disk: a job that is not in memory, or the memory of its id.

    `history` (newest last) and `payload` are filled in for `show`, `result` for `show` and `wait`.
    """

    job: Job | None = None
    remembered: Remembered | None = None
    history: Sequence[Mapping[str, Any]] = ()
    payload: bytes | None = None
    result: bytes | None = None


@attrs.define
class Connected:
    """A peer was accepted. `supervised` peers and workers say who they are in their first message."""

    connection: int
    uid: int
    pid: int
    is_text: bool = False


@attrs.define
class Received:
    """A legal, checked message.

    `found` answers `Core.wants(message)`: ids to what the journal holds of them. `asked_at` is the
    core's step count when the look-up was made; if one of the ids left memory since, the core
    answers with `LookAgain`.
    """

    connection: int
    request: int
    message: Message
    found: Mapping[str, Found] = attrs.Factory(dict[str, Found])
    asked_at: int = 0
    parked_until_ms: int | None = None
    parked_turn: int = 0
    """The core's own notes on an enqueue that waited for room and is stepped again."""


@attrs.define
class Disconnected:
    """The connection has ended; everything it had sent was handled before. Its process may live."""

    connection: int


@attrs.define
class PeerExited:
    """The pidfd of a peer fired: its process is dead. Comes after all it had sent, before Disconnected."""

    connection: int


@attrs.define
class OwnerGone:
    """After a restart: the journalled identity of a lease's holder or supervisor is proved dead."""

    owner: str
    """Identity text (`Job.worker`, `Job.supervisor`)."""
    of_another_boot: bool = False
    """The host was started anew since: nothing that it had started is left either."""


@attrs.define
class TimePassed:
    """A deadline of `Core.next_deadline` may have come."""


@attrs.define
class Stalled:
    """The broker itself was not running for `stalled_ms` (stopped, starved). Leases get it back.

    Said before anything else that comes after it, and no `TimePassed` follows before everything that waits in the
    sockets has been read.
    """

    stalled_ms: int


@attrs.define
class HeldUp:
    """The disk took long over a batch: what it pushes, or what is pushed after it, leaves only now."""

    pushes: Sequence[Message]


@attrs.define
class StorageChanged:
    """Free space fell under the low-water mark, or returned."""

    full: bool


@attrs.define
class PruneFound:
    """Rows whose retention is over, as the journal saw them at step `asked_at`: the core decides.

    Each is (number, id, body hash, id by caller, queue, state, created_boot_ms).
    """

    rows: Sequence[tuple[int, str, bytes, bool, str, str, int]]
    asked_at: int


@attrs.define
class IdsForgotten:
    """The journal forgot remembered ids whose time was over."""

    count: int


@attrs.define
class StopRequested:
    """The broker shall end: no new grants, every waiting request is answered `shutting_down`."""


Event = (
    Connected
    | Received
    | Disconnected
    | PeerExited
    | OwnerGone
    | TimePassed
    | Stalled
    | HeldUp
    | StorageChanged
    | PruneFound
    | IdsForgotten
    | StopRequested
)
