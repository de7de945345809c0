"""One job as the broker holds it: the row of the journal, field for field.

`Job` is the mutable object in memory, `image` the tuple of all its fields in the order of
`COLUMNS`, which is what the journal writes and recovery reads. The payload is not part of it (it
never changes and may be large), nor is the history of attempts (append only): both have tables of
their own.

Instants: `_boot_ms` are on the boot-time clock (suspend counts, wall-clock steps do not) of the
broker start `epoch`; `_at_ms` are wall-clock milliseconds since 1970. Zero means "none" for both.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import attrs

from ...proto.model import State


@attrs.define(slots=True, eq=False)
class Job:
    """A job. Only `core.lifecycle` changes `state`; whoever changes a field marks the job changed."""

    number: int
    """Key of its row: a journalled counter, never reused."""
    id: str
    body_hash: bytes
    """16 bytes over everything the enqueue said but the request id: same id + same hash = same job."""
    id_by_caller: bool
    """Chosen by a caller (remembered 24 h) or made by the library (15 min)."""
    kind: str
    queue: str
    priority: int
    position: int
    """Order of arrival, from the same counter as `number`; a kick gives a new one."""
    state: State
    resolved: bool
    """False while the kind is unknown and the enqueue left queue, priority or expiry to it."""
    payload_bytes: int
    headers: Mapping[str, str] | None
    created_at_ms: int
    epoch: int
    """The broker start whose boot clock the `_boot_ms` fields below are on."""
    created_boot_ms: int
    due_boot_ms: int = 0
    """While scheduled: when it becomes ready, unless `run_at_ms` is set."""
    delay_ms: int = 0
    """The length that `due_boot_ms` was made from: after a reboot no wait is believed to be longer."""
    run_at_ms: int = 0
    """While scheduled by a date: the wall-clock instant."""
    expires_boot_ms: int = 0
    expires_ms: int = 0
    # What the enqueue said itself; None: the kind's policy, the queue's and the defaults follow at the lease.
    queue_given: bool = False
    priority_given: bool = False
    expires_given: bool = False
    attempts_max: int | None = None
    crashes_max: int | None = None
    time_limit_ms: int | None = None
    lease_ms: int | None = None
    backoff_ms: int | None = None
    backoff_cap_ms: int | None = None
    attempt: int = 0
    """Handlers started. A job handed out but never started is taken back out of it."""
    charged: int = 0
    """Attempts that count against `attempts_max` and drive the backoff."""
    crashes: int = 0
    """Crashes and losses, against `crashes_max`."""
    releases: int = 0
    """Uncharged ends in a row."""
    token_epoch: int = 0
    token_counter: int = 0
    """Of the last lease, live or not. `state` is leased while it is live."""
    worker: str = ""
    """Identity of the lease's holder, as `workers.Identity.text` writes it; empty when there is none."""
    ticket: bytes = b""
    """The holder's supervisor, empty for a raw worker."""
    supervisor: str = ""
    """Its identity, as text; empty while nobody holds the job."""
    leased_at_ms: int = 0
    cancelling: bool = False
    """A person withdrew it while it was running; it becomes cancelled when its process has ended."""
    suspect: bool = False
    """It ran with others in a worker that died, and nobody knows which of them did it: it runs alone
    until it has finished an attempt."""
    outcome: str = ""
    """Of the last attempt that ended; empty before one has."""
    reason: str = ""
    """Why it is in this state, for a person; at most `REASON_BYTES_MAX`."""
    finished_at_ms: int = 0
    finished_boot_ms: int = 0

    @property
    def token(self) -> tuple[int, int]:
        """The key of the last lease."""
        return (self.token_epoch, self.token_counter)


COLUMNS: tuple[str, ...] = tuple(field.name for field in attrs.fields(Job))
"""Field names in the order of `image`: the columns of the journal's `jobs` table."""

Image = tuple[Any, ...]
"""All fields of a job, in the order of COLUMNS."""

_image = attrgetter(*COLUMNS)


def image(job: Job) -> Image:
    """The full after-image of a job, for the journal."""
    result: Image = _image(job)
    return result


def from_image(values: Image) -> Job:
    """The job an image was taken from."""
    return Job(*values)
