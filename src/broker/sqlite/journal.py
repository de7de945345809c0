"""The journal on SQLite: one connection, one file and its log, group commits that are synced.

`locking_mode=EXCLUSIVE` is set before the log is first touched: then there is no shared-memory file
to fail on a full disk, a second opener is refused, and the race between two connections at a reset of
the log cannot arise. `load` folds the log of the last run into the file with syncs before it answers:
after a failed sync the kernel may show pages that are on no disk, and only writing them again helps.
Checkpoints are made here, between commits, never by SQLite in the middle of one.

After any error but a full disk nothing is tried again (see `errors.py`): every method but `close`
raises, and `close` leaves file and log as they are.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Literal

import apsw

from ...proto import limits
from .. import aging
from ..core.effects import Changes
from ..core.events import Found
from ..core.job import Job
from ..journal import JournalBrokenError, JournalFullError, Recovered, Retention, exhaust
from ..refusals import JournalCorruptError
from ..whereabouts import JournalLostError, Whereabouts
from . import reading, rows, schema, writing
from .database import Database
from .errors import NO_SPACE, meaning, refusal
from .loading import begin_start, read_meta, read_recovered, settle, start_row
from .marks import Marks
from .opening import open_database
from .snapshot import copy_steps

WAL_BURST = 2
"""So many times over its limit, a log is folded in by the commit itself: nobody was ever idle."""

WAL_FRAME_HEADER_BYTES = 24

PLACE_S = 0.1
"""A commit this long after the last look is followed by one at where the files are, and whether they are still
what they were, before it is told to anybody. That is three calls of `stat` and six small reads; after each commit
they would cost what a fifth of a fast sync does."""

Synchronous = Literal["FULL", "NORMAL"]


class SqliteJournal:
    """See the module and `journal.Journal`."""

    def __init__(
        self,
        path: str,
        *,
        synchronous: Synchronous = "FULL",
        check: bool = False,
        vfs: str = "",
        wal_bytes_checkpoint: int = limits.WAL_BYTES_CHECKPOINT,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` asks `load` for a full look at the file: the last run ended in a storage error.

        NORMAL syncs only at checkpoints: it survives the death of any process, but a power cut
        takes what was committed since the last one.
        """
        self.path = path
        self._synchronous: Synchronous = synchronous
        self._check = check
        self._vfs = vfs
        self._wal_bytes_checkpoint = wal_bytes_checkpoint
        self._database: Database | None = None
        self._broken = False
        self._anchors: dict[int, aging.Anchor] = {}
        self._epoch = 0
        self._page_bytes = 0
        self._wal_pages = 0
        self._ids_kept = 0
        self._commits = 0
        self._logs = 0
        self._monotonic_s = monotonic_s
        self._whereabouts: Whereabouts | None = None
        self._marks: Marks | None = None
        self._place_at_s = 0.0
        """When they are looked at after a commit again."""

    def load(self, *, boot_id: str, boot_ms: int, wall_ms: int) -> Recovered:
        if self._broken or self._database is not None:
            raise JournalBrokenError(f"{self.path}: this journal is loaded or broken already")
        with self._opening():
            self._database = database = open_database(self.path, self._vfs)
            settle(
                database,
                self.path,
                check=self._check,
                wal_bytes_kept=self._wal_bytes_checkpoint,
                vfs=self._vfs,
            )
            database.connection.set_wal_hook(self._note_wal)
            self._anchors = begin_start(
                database, boot_id=boot_id, boot_ms=boot_ms, wall_ms=wall_ms, synchronous=self._synchronous
            )
            recovered = read_recovered(database, self.path, self._anchors)
            database.run(f"PRAGMA synchronous = {self._synchronous}")
            self._page_bytes = database.number("PRAGMA page_size")
            self._logs = read_meta(database)["logs"]
            directory, name = os.path.split(os.path.abspath(self.path))
            self._whereabouts = Whereabouts(directory, name, f"{name}-wal")
            self._marks = Marks(database, self.path, self._page_bytes)
            self._marks.check(self._wal_pages)
        self._epoch = recovered.epoch
        self._ids_kept = recovered.ids_kept
        return recovered

    @contextmanager
    def _opening(self) -> Generator[None]:
        """Nothing stays open of a load that failed, so that it can be repeated."""
        try:
            with self._explaining("opening it"):
                yield
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise JournalFullError(f"{self.path}: no space left, while making it") from error
            if isinstance(error.__cause__, apsw.SQLError):
                # The statements are right, so it must be the tables that are not.
                says = f"is damaged ({error.__cause__}); restore a snapshot"
                raise JournalCorruptError(self.path, says) from error.__cause__
            cause = error if isinstance(error, OSError) else error.__cause__
            refused = refusal(cause, self.path)
            raise refused or error from cause

    def _abandon(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _note_wal(self, _database: apsw.Connection, _name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def commit(self, changes: Changes) -> None:
        with self._writing("committing") as database:
            ids_more = writing.apply_changes(database, changes, self._epoch)
        self._ids_kept += ids_more
        self._commits += 1
        if self._monotonic_s() >= self._place_at_s:
            self.check_place()
        if self._wal_bytes() > WAL_BURST * self._wal_bytes_checkpoint:
            # The batch is down. That there is no room to fold it in must not look as if it were not.
            with suppress(JournalFullError):
                self._fold_in()

    def check_place(self) -> None:
        with self._using("looking where it is"):
            self._place_at_s = self._monotonic_s() + PLACE_S
            self._look()

    def _look(self) -> None:
        assert self._whereabouts is not None and self._marks is not None
        try:
            self._whereabouts.check()
            self._marks.check(self._wal_pages)
        except JournalLostError:
            self._broken = True
            raise

    def _look_for_the_cause(self) -> None:
        """JournalLostError if that is it: what is left of a file that was cut may look whole to the next start."""
        if self._marks is not None:
            self._look()

    def forget_ids(self, *, boot_ms: int, limit: int) -> int:
        with self._writing("forgetting ids") as database:
            forgotten = writing.forget(database, self._anchors, self._epoch, boot_ms=boot_ms, limit=limit)
            seen = aging.seen(self._anchors[self._epoch], boot_ms)
            if seen is not None:
                epoch, *_, crc = start_row(seen)
                database.run(schema.SEEN, (epoch, boot_ms, crc))
        if seen is not None:
            self._anchors[self._epoch] = seen
        self._ids_kept -= forgotten
        return forgotten

    def find(self, id: str, *, history: bool = False, payload: bool = False) -> Found:
        with self._using("looking up an id") as database:
            return reading.find(database, id, history=history, payload=payload)

    def payload(self, number: int) -> bytes:
        with self._using("reading a payload") as database:
            payload = reading.payload_of(database, number)
        if payload is None:
            raise KeyError(number)
        return payload

    def list_jobs(
        self, *, queue: str | None, state: str | None, kind: str | None, after: int, limit: int
    ) -> Sequence[Job]:
        with self._using("listing jobs") as database:
            return reading.list_jobs(database, queue=queue, state=state, kind=kind, after=after, limit=limit)

    def dead_ids(self, queue: str, limit: int) -> Sequence[str]:
        with self._using("listing dead jobs") as database:
            return reading.dead_ids(database, queue, limit)

    def prunable(self, retention: Retention, *, boot_ms: int, limit: int) -> Sequence[reading.PruneRow]:
        with self._using("looking for what to prune") as database:
            return reading.Pruner(database, self._anchors, self._epoch, boot_ms).find(retention, limit)

    def snapshot(self, path: str) -> int:
        return exhaust(self.snapshot_steps(path))

    def snapshot_steps(self, path: str) -> Generator[None, None, int]:
        with self._using("copying it") as database:
            return (yield from copy_steps(database, path, self._vfs))

    def statistics(self) -> Mapping[str, int]:
        return {
            "journal_bytes": _file_bytes(self.path),
            "wal_bytes": _file_bytes(f"{self.path}-wal"),
            "commits": self._commits,
            "ids_kept": self._ids_kept,
        }

    def checkpoint_if_due(self) -> bool:
        if self._wal_bytes() < self._wal_bytes_checkpoint:
            return False
        self._fold_in()
        return True

    def _fold_in(self) -> None:
        """Fold the log into the file, and begin the next one in its place at once.

        A log that is in the file already must not lie there: should it lose its end, its older pages
        would be put over newer ones at the next start, and nothing could tell. It keeps its length, since
        a file that has to grow takes longer to sync.
        """
        # First, because SQLite would fold in whatever is there.
        self.check_place()
        self._checkpoint(apsw.SQLITE_CHECKPOINT_PASSIVE)
        with self._writing("beginning a new log") as database:
            database.run(schema.PUT_META, rows.sealed(("logs", self._logs + 1)))
        self._logs += 1

    def _checkpoint(self, mode: int) -> None:
        assert self._marks is not None
        with self._using("folding in the log") as database:
            self._marks.begin_log()
            try:
                database.checkpoint(mode)
            finally:
                self._marks.take_file()
        self._wal_pages = 0

    def _wal_bytes(self) -> int:
        return self._wal_pages * (self._page_bytes + WAL_FRAME_HEADER_BYTES)

    def close(self) -> None:
        database = self._database
        if database is None:
            return
        try:
            if not self._broken:
                # First, because SQLite removes the log by its name, which may be another file's by now.
                self.check_place()
                self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
                # All is in the file: now SQLite may remove the log.
                database.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        finally:
            self._database = None
            database.close()

    @contextmanager
    def _writing(self, doing: str) -> Generator[Database]:
        """One transaction: all or nothing, and rolled back whatever went wrong."""
        with self._using(doing) as database:
            try:
                database.run("BEGIN IMMEDIATE")
                yield database
                database.run("COMMIT")
            except apsw.Error:
                raise
            except BaseException:
                # A fault of ours, say a value that no column takes: the batch is lost all the same.
                self._broken = True
                raise

    @contextmanager
    def _using(self, doing: str) -> Generator[Database]:
        if self._broken or self._database is None:
            raise JournalBrokenError(
                f"{self.path}: the journal is closed or broken: only a new start can go on"
            )
        with self._explaining(doing):
            yield self._database

    @contextmanager
    def _explaining(self, doing: str) -> Generator[None]:
        """Turn errors of storage into what they mean, with no transaction left open."""
        try:
            yield
        except apsw.Error as error:
            meant = meaning(error, self.path, doing, self._system_errno())
            self._broken = not (self._roll_back() and isinstance(meant, JournalFullError))
            if not isinstance(meant, JournalFullError):
                self._look_for_the_cause()
            raise meant from error
        except (rows.DamagedRowError, UnicodeDecodeError) as error:
            # Text is decoded as it is read, so a damaged one is met before the row's checksum is.
            self._broken = True
            self._look_for_the_cause()
            raise JournalCorruptError(self.path, f"is damaged: {error}; restore a snapshot") from error
        except BaseException:
            self._broken = not self._roll_back() or self._broken
            raise

    def _system_errno(self) -> int:
        return self._database.connection.system_errno if self._database else 0

    def _roll_back(self) -> bool:
        """Whether no transaction is open now."""
        database = self._database
        if database is None or not database.connection.in_transaction:
            return True
        try:
            database.run("ROLLBACK")
        except apsw.Error:
            # What failed before is what the caller must hear of.
            return False
        return True


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
