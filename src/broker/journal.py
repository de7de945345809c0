"""The journal: what the broker must not forget, as one protocol with two implementations.

`memory.MemoryJournal` serves tests and the simulation, `sqlite.SqliteJournal` the real broker; one
conformance suite holds both to the same behaviour. A journal is used by one thread at a time, and
knows nothing of queue rules: it stores changes and answers look-ups.

A file that must not be used at all is refused by `load` with one of `refusals.py`. A job comes back
exactly as it was written, its `_boot_ms` fields on the clock of its own `epoch`; `recovery.py`
carries the live ones over to this start. Only what retention asks (`prunable`, `forget_ids`) is
answered on the clock of this start, by `aging.py`.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from ..proto.model import Outcome
from .core.effects import Changes
from .core.events import Found
from .core.job import Job


class JournalFullError(Exception):
    """The disk is full (ENOSPC, EDQUOT, EFBIG). Nothing of the batch was stored; it may be repeated."""

    exit_word = "STORAGE"


class JournalBrokenError(Exception):
    """Any other storage error. Memory may be ahead of the disk: only a restart is honest.

    From then on the journal refuses everything but `close`. A damaged row is the subclass
    `refusals.JournalCorruptError`, whose exit code asks for no restart.
    """

    exit_word = "STORAGE"


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
    ended: Sequence[tuple[str, tuple[int, int], str]] = ()
    """The attempts that ended last (up to ENDED_RECOVERED), oldest first: (worker identity, token, op)
    with op `ack` for outcome ok, `release` for released and shutdown, none for crash and lost, else
    `nack`. A worker that did not see its answer repeats that op after a restart, and is recognised by this."""


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
        """Open for this start: checkpoint, write and sync the new epoch, read what lives.

        After JournalFullError it may be called again, on the same journal, once there is room.
        """
        ...

    def commit(self, changes: Changes) -> None:
        """Make changes durable, all or none.

        A job that is both in `images` and in `deleted` was made and dropped within the batch: it is
        deleted. The id of a job never changes.
        """
        ...

    def find(self, id: str, *, history: bool = False, payload: bool = False) -> Found:
        """What is stored of a job id, live or finished. `Found()` if nothing is.

        `history` asks for the last OUTCOMES_KEPT attempts, oldest first, and for the result of the
        last of them that was `ok`. An id is `remembered` only while it has no row.
        """
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
        """Ids of the dead jobs of a queue, the first to die first."""
        ...

    def prunable(
        self, retention: Retention, *, boot_ms: int, limit: int
    ) -> Sequence[tuple[int, str, bytes, bool, str, str, int]]:
        """Finished rows past their time or number, as `events.PruneFound` wants them.

        Done and cancelled ones first, then dead ones, the first to finish first. Only a look: the
        core decides, and deletes through `commit`. Age is time that a broker was there to see (see
        `aging.py`), so that no step of the wall clock ever deletes anything early. The
        `created_boot_ms` of each row is on the clock of this start.
        """
        ...

    def check_place(self) -> None:
        """JournalLostError (`whereabouts.py`) if its files are not where the next start would look for them.

        Called every second; a journal on files also looks by itself, behind commits that are not told yet.
        """
        ...

    def forget_ids(self, *, boot_ms: int, limit: int) -> int:
        """Forget remembered ids whose time is over, in one small transaction; how many were.

        Called every few seconds: it also tells the journal, for the next start, how far the boot
        clock has come.
        """
        ...

    def snapshot(self, path: str) -> int:
        """Write a consistent copy to a new file; its size in bytes. OSError if it cannot be written.

        FileExistsError if there is such a file: no copy is ever overwritten.
        """
        ...

    def snapshot_steps(self, path: str) -> Generator[None, None, int]:
        """The same in slices: commits may happen between them, and are in the copy.

        Exhaust it for the size (`StopIteration.value`) or `close` it to give up; either way nothing
        half-written stays behind.
        """
        ...

    def checkpoint_if_due(self) -> bool:
        """Called when there is nothing else to do: fold the log into the file if it has grown."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """`journal_bytes`, `wal_bytes`, `commits`, and `ids_kept`, for `status`."""
        ...

    def close(self) -> None:
        """Checkpoint and close. The journal is not used again."""
        ...


def ended(worker: str, token: tuple[int, int], outcome: str) -> tuple[str, tuple[int, int], str]:
    """One of `Recovered.ended`: the op by which its worker reported, or will repeat, how it ended.

    An attempt that was lost, or crashed, was ended by no op of its worker: whatever comes late is stale.
    """
    if outcome in (Outcome.CRASH, Outcome.LOST):
        return worker, token, ""
    if outcome == Outcome.OK:
        return worker, token, "ack"
    return worker, token, "release" if outcome in (Outcome.RELEASED, Outcome.SHUTDOWN) else "nack"


def outcome_maps(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the outcomes table as maps, for `show`."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def exhaust(steps: Generator[None, None, int]) -> int:
    """Run all steps of a snapshot at once; the size of the copy."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            size: int = done.value
            return size
