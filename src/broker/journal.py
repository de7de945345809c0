"""The journal: what the broker must not forget, as one protocol with two implementations.

`MemoryJournal` (here) serves tests and the simulation, `sqlite.SqliteJournal` the real broker; one
conformance suite holds both to the same behaviour. A journal is used by one thread at a time, and
knows nothing of queue rules: it stores changes and answers look-ups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from .core.effects import Changes
from .core.events import Found
from .core.job import Job


class JournalFullError(Exception):
    """The disk is full (ENOSPC, EDQUOT, EFBIG). Nothing of the batch was stored; it may be repeated."""


class JournalBrokenError(Exception):
    """Any other storage error. Memory may be ahead of the disk: only a restart is honest."""


@attrs.frozen
class Start:
    """One start of the broker: the anchor by which a boot-clock instant of its epoch is understood."""

    epoch: int
    boot_id: str
    boot_ms: int
    wall_ms: int


@attrs.define
class Recovered:
    """What `load` found. `jobs` are the live ones, by number, exactly as written."""

    epoch: int
    """Of this start: greater than any before, and synced."""
    sequence: int
    starts: Mapping[int, Start]
    """This start and every earlier one that a live job's `epoch` still names."""
    jobs: Sequence[Job]
    finished_counts: Mapping[tuple[str, str], int]
    """(queue, state) to the number of finished rows."""
    kinds: Mapping[str, tuple[str, dict[str, Any]]]
    """kind to (pool, policy)."""
    paused: frozenset[str]
    ids_kept: int
    """Ids remembered beyond their rows."""


@attrs.frozen
class Retention:
    """How long and how many finished rows are kept, on the boot clock of now."""

    done_kept_ms: int
    done_kept_max: int
    dead_kept_ms: int
    dead_kept_max: int


class Journal(Protocol):
    """See the module. Every method may raise JournalBrokenError; those that write also JournalFullError."""

    def load(self, *, boot_id: str, boot_ms: int, wall_ms: int) -> Recovered:
        """Open for this start: checkpoint, write and sync the new epoch, read what lives."""
        ...

    def commit(self, changes: Changes) -> None:
        """Make changes durable, all or none."""
        ...

    def find(self, id: str, *, history: bool = False, payload: bool = False) -> Found:
        """What is stored of a job id, live or finished. `Found()` if nothing is."""
        ...

    def payload(self, number: int) -> bytes:
        """The payload of a job; KeyError if there is none."""
        ...

    def list_jobs(
        self, *, queue: str | None, state: str | None, kind: str | None, after: int, limit: int
    ) -> Sequence[Job]:
        """Jobs by number, those above `after`."""
        ...

    def dead_ids(self, queue: str, limit: int) -> Sequence[str]:
        """Ids of the oldest dead jobs of a queue."""
        ...

    def prunable(
        self, retention: Retention, *, boot_ms: int, limit: int
    ) -> Sequence[tuple[int, str, bytes, bool, str, str, int]]:
        """Finished rows past their time or number, oldest first, as `events.PruneFound` wants them.

        Only a look: the core decides, and deletes through `commit`. Age runs on the boot clock; at the
        first start after a reboot `load` counts finished rows as finished then, so that no step of
        the wall clock ever deletes anything early.
        """
        ...

    def forget_ids(self, *, boot_ms: int, limit: int) -> int:
        """Forget remembered ids whose time is over, in one small transaction; how many were."""
        ...

    def snapshot(self, path: str) -> int:
        """Write a consistent copy to a new file; its size in bytes. OSError if it cannot be written."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """`journal_bytes`, `wal_bytes`, `commits`, and `ids_kept`, for `status`."""
        ...

    def close(self) -> None:
        """Checkpoint and close. The journal is not used again."""
        ...


def outcome_maps(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the outcomes table as maps, for `show`."""
    return [dict(zip(columns, row, strict=True)) for row in rows]
