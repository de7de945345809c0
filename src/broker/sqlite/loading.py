"""The start of a journal: settings, lock, checkpoint, the new epoch, and what lives.

In this order, because each step is what makes the next one true: the lock before anything is
believed, the checkpoint (with syncs) before anything is answered, the epoch on disk before a token
of it is given to anyone.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import apsw
import attrs

from ...proto import limits
from ...proto.model import FINAL_STATES
from .. import aging
from ..core.effects import OUTCOME_COLUMNS
from ..core.job import Job
from ..journal import JournalBrokenError, Recovered, Start, ended
from ..refusals import JournalCorruptError
from . import rows, schema
from .database import Database
from .log import log_bytes, read_log, write_anew
from .opening import check_version

EPOCHS_SINCE_MS = 1_577_836_800_000
EPOCH_MS = 100
"""Since 2020, in tenths of a second: the epochs of the first starts on snapshots."""

TORN_COMMITS_MAX = 1
"""Commits that a power cut may leave half on disk: only the last was not synced."""

_WORKER, _OUTCOME = OUTCOME_COLUMNS.index("worker"), OUTCOME_COLUMNS.index("outcome")
_TOKEN_EPOCH, _TOKEN_COUNTER = OUTCOME_COLUMNS.index("token_epoch"), OUTCOME_COLUMNS.index("token_counter")

_FINAL = frozenset(state.value for state in FINAL_STATES)


def settle(database: Database, path: str, *, check: bool, wal_bytes_kept: int, vfs: str = "") -> None:
    """Set up the connection, become its one user, and fold what the last run left into the file."""
    database.connection.set_busy_timeout(0)
    for setting in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        "wal_autocheckpoint = 0",
        "synchronous = FULL",
        f"journal_size_limit = {wal_bytes_kept}",
        "temp_store = MEMORY",
        "cell_size_check = ON",
        "trusted_schema = OFF",
    ):
        database.run(f"PRAGMA {setting}")
    refuse_loss(database, path)
    _harden_log(database, path, vfs)
    left = database.checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
    if left != (0, 0):
        raise JournalBrokenError(f"{path}: the log could not be folded in: {left} pages and done of them")
    # Asked again: a log may have held a newer page than the one in the file.
    check_version(path, database.number("PRAGMA application_id"), database.number("PRAGMA user_version"))
    refuse_other_tables(database, path)
    if check or _bytes(database) <= limits.JOURNAL_BYTES_CHECKED:
        refuse_damage(database, path)


def refuse_loss(database: Database, path: str) -> None:
    """Refuse a log from which SQLite would take less than was once safe on disk (see `log.py`)."""
    taken, _ = database.checkpoint(apsw.SQLITE_CHECKPOINT_NOOP)
    found = read_log(f"{path}-wal", database.number("PRAGMA page_size"))
    if found is None or read_meta(database)["synchronous"] != "FULL":
        return
    lost = found.commits_after(taken)
    if lost > TORN_COMMITS_MAX:
        raise JournalCorruptError(
            f"{path}-wal",
            f"is damaged: {lost} commits lie behind the damage; restore a snapshot, or go on without them "
            f"by cutting it to {found.bytes_up_to(taken)} bytes with `truncate -s`",
        )


def _bytes(database: Database) -> int:
    return database.number("PRAGMA page_count") * database.number("PRAGMA page_size")


def _harden_log(database: Database, path: str, vfs: str) -> None:
    """Put on disk what SQLite takes from the log, before any of it goes into the file (see `log.py`)."""
    taken, _ = database.checkpoint(apsw.SQLITE_CHECKPOINT_NOOP)
    if taken > 0:
        size_bytes = log_bytes(taken, database.number("PRAGMA page_size"))
        write_anew(f"{path}-wal", size_bytes, vfs)


def refuse_other_tables(database: Database, path: str) -> None:
    """Refuse a file whose tables are not those of its version: something in their description has changed."""
    with closing(Database(":memory:", apsw.SQLITE_OPEN_READWRITE, "")) as model:
        model.run(schema.SCHEMA)
        wanted = list(model.each(schema.TABLES))
    if list(database.each(schema.TABLES)) != wanted:
        raise JournalCorruptError(
            path, "is damaged: its tables are not those of its version; restore a snapshot"
        )


def refuse_damage(database: Database, path: str) -> None:
    """Have SQLite look at the whole file; JournalCorruptError with what it finds.

    The rows have checksums, but not what leads to them: an index that lost its way, or a page in the place
    of another, hides rows that are whole. Rows and payloads themselves SQLite cannot judge.
    """
    # What it says of one place may have several lines.
    found = [" ".join(str(row[0]).split()) for row in database.each("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise JournalCorruptError(path, f"is damaged ({'; '.join(found)}); restore a snapshot")


def begin_start(
    database: Database, *, boot_id: str, boot_ms: int, wall_ms: int, synchronous: str
) -> dict[int, aging.Anchor]:
    """Write and sync the epoch of this start; all starts that a row still names, this one the last."""
    database.run("BEGIN IMMEDIATE")
    database.run(schema.DELETE_STARTS)
    anchors = {anchor.start.epoch: anchor for anchor in map(_anchor, database.each(schema.STARTS))}
    last = anchors[max(anchors)] if anchors else None
    meta = read_meta(database)
    ended = meta["epoch"]
    if ended != (last.start.epoch if last is not None else 0):
        raise rows.DamagedRowError(f"the last start, epoch {ended}, is not there")
    epoch = ended + 1
    if meta.get(schema.IS_COPY):
        # Others were given epochs since it was made, also by starts on this very copy. Nobody starts brokers
        # so fast one after the other, so the clock is ahead of them all.
        epoch = max(epoch, (wall_ms - EPOCHS_SINCE_MS) // EPOCH_MS)
    anchor = aging.following(last, Start(epoch, boot_id, boot_ms, wall_ms))
    database.run(schema.PUT_START, start_row(anchor))
    new = (("epoch", epoch), ("synchronous", synchronous), (schema.IS_COPY, 0))
    database.run_many(schema.PUT_META, map(rows.sealed, new))
    database.run("COMMIT")
    anchors[epoch] = anchor
    return anchors


def start_row(anchor: aging.Anchor) -> rows.Row:
    """The row of a start."""
    return rows.sealed((*attrs.astuple(anchor.start), anchor.offset_ms, anchor.seen_boot_ms))


def _anchor(row: rows.Row) -> aging.Anchor:
    epoch, boot_id, boot_ms, wall_ms, offset_ms, seen_boot_ms = rows.unsealed(row, f"start {row[0]}")
    return aging.Anchor(Start(epoch, boot_id, boot_ms, wall_ms), offset_ms, seen_boot_ms)


def read_recovered(database: Database, path: str, anchors: Mapping[int, aging.Anchor]) -> Recovered:
    """All that the broker needs in memory."""
    jobs = [rows.job_from_row(row) for row in database.each(schema.LIVE_JOBS)]
    epoch = max(anchors)
    return Recovered(
        epoch=epoch,
        sequence=read_meta(database)["sequence"],
        starts=_starts_of(jobs, path, anchors, epoch),
        jobs=jobs,
        finished_counts=_finished_counts(database, path),
        kinds={
            kind: (pool, policy)
            for kind, pool, policy in map(rows.kind_from_row, database.each(schema.KINDS))
        },
        paused=frozenset(rows.unsealed(row, "a pause")[0] for row in database.each(schema.PAUSED)),
        ended=_last_ended(database),
        ids_kept=database.number(schema.IDS_COUNT),
    )


def _last_ended(database: Database) -> list[tuple[str, tuple[int, int], str]]:
    newest_first = map(rows.outcome_from_row, database.each(schema.LAST_ENDED, (limits.ENDED_RECOVERED,)))
    return [
        ended(row[_WORKER], (row[_TOKEN_EPOCH], row[_TOKEN_COUNTER]), row[_OUTCOME]) for row in newest_first
    ][::-1]


def _starts_of(
    jobs: list[Job], path: str, anchors: Mapping[int, aging.Anchor], epoch: int
) -> dict[int, Start]:
    epochs = {job.epoch for job in jobs} | {epoch}
    if not epochs <= anchors.keys():
        raise JournalCorruptError(
            path, "is damaged: a job names a start that is not there; restore a snapshot"
        )
    return {epoch: anchors[epoch].start for epoch in epochs}


def _finished_counts(database: Database, path: str) -> dict[tuple[str, str], int]:
    counts = {(queue, state): count for queue, state, count in database.each(schema.FINISHED_COUNTS)}
    unknown = {state for _, state in counts} - _FINAL
    if unknown:
        # Neither live nor finished: without this look such a job would just be gone.
        raise JournalCorruptError(
            path, f"is damaged: a job has the state {unknown.pop()!r}; restore a snapshot"
        )
    return counts


def read_meta(database: Database) -> dict[str, Any]:
    """What the journal holds of itself."""
    sealed = database.each(schema.META)
    meta: dict[str, Any] = dict(rows.unsealed(row, f"the {row[0]} of the journal") for row in sealed)
    missing = dict(schema.META_OF_NEW).keys() - meta.keys()
    if missing:
        raise rows.DamagedRowError(f"the {missing.pop()} of the journal is gone")
    return meta
