"""The journal on a failing disk: a full one may be tried again, after anything else nothing is."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faulty_vfs import OPERATIONS, Disk, faulty_disk
from support.journals import an_image, an_outcome, load, stored
from support.paths import TESTS, python_path

from stoker.broker.core.effects import Changes
from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.journal import Synchronous

NO_SPACE = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


@pytest.fixture
def disk() -> Iterator[Disk]:
    with faulty_disk() as disk:
        yield disk


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


def start(path: str, vfs: str = "") -> SqliteJournal:
    journal = SqliteJournal(path, vfs=vfs)
    load(journal)
    return journal


@pytest.fixture
def journal(path: str, disk: Disk) -> Iterator[SqliteJournal]:
    journal = start(path, disk.name)
    yield journal
    disk.heal()
    journal.close()


def numbers_after_restart(path: str) -> list[int]:
    journal = SqliteJournal(path)
    recovered = load(journal)
    journal.close()
    return [job.number for job in recovered.jobs]


@pytest.mark.parametrize("system_errno", NO_SPACE)
def test_full_disk_stores_nothing_and_the_batch_may_be_repeated(
    journal: SqliteJournal, disk: Disk, system_errno: int
) -> None:
    batch = stored(an_image(1), an_image(2))
    disk.fail("write", system_errno=system_errno)
    with pytest.raises(JournalFullError, match="no space left"):
        journal.commit(batch)
    assert journal.find("job-1").job is None
    journal.commit(batch)
    assert journal.find("job-1").job is not None


def test_journal_stays_usable_while_the_disk_is_full(journal: SqliteJournal, disk: Disk, path: str) -> None:
    journal.commit(stored(an_image(1)))
    disk.fail("write", system_errno=errno.ENOSPC, for_ever=True)
    for _ in range(3):
        with pytest.raises(JournalFullError):
            journal.commit(stored(an_image(2)))
    assert journal.payload(1) == b"payload 1"
    disk.heal()
    journal.commit(Changes(sequence=9))
    journal.close()
    assert numbers_after_restart(path) == [1]


@pytest.mark.parametrize("system_errno", [errno.EIO, errno.EROFS, 0])
def test_other_write_error_breaks_the_journal_for_good(
    journal: SqliteJournal, disk: Disk, system_errno: int
) -> None:
    disk.fail("write", system_errno=system_errno)
    with pytest.raises(JournalBrokenError, match="IOERR_WRITE"):
        journal.commit(stored(an_image(1)))
    with pytest.raises(JournalBrokenError, match="only a new start"):
        journal.commit(stored(an_image(1)))
    with pytest.raises(JournalBrokenError):
        journal.find("job-1")


@pytest.mark.parametrize("system_errno", [errno.EIO, *NO_SPACE])
def test_failed_sync_is_never_tried_again(journal: SqliteJournal, disk: Disk, system_errno: int) -> None:
    disk.fail("sync", system_errno=system_errno)
    with pytest.raises(JournalBrokenError):
        journal.commit(stored(an_image(1)))
    before = len(disk.calls)
    journal.close()
    assert not [call for call in disk.calls[before:] if call[0] in ("write", "sync", "truncate")]


def test_commit_is_synced_before_it_returns(journal: SqliteJournal, disk: Disk) -> None:
    journal.commit(stored(an_image(1)))
    disk.calls.clear()
    journal.commit(stored(an_image(2)))
    assert ("write", "wal") in disk.calls
    assert [call for call in disk.calls if call[0] in ("write", "sync")][-1] == ("sync", "wal")


def test_log_of_the_last_run_is_written_anew_before_it_is_folded_in(path: str, disk: Disk) -> None:
    """After a failed sync it may be readable and yet be on no disk."""
    journal = start(path)
    journal.commit(stored(an_image(1)))
    shutil.copy(path, f"{path}.killed")
    shutil.copy(f"{path}-wal", f"{path}.killed-wal")
    journal.close()
    start(f"{path}.killed", disk.name).close()
    changes = [call for call in disk.calls if call[0] in ("write", "sync")]
    first_in_file = changes.index(("write", "db"))
    assert changes[:first_in_file][:2] == [("write", "wal"), ("sync", "wal")]


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_epoch_is_synced_before_load_returns(path: str, disk: Disk, synchronous: Synchronous) -> None:
    journal = SqliteJournal(path, vfs=disk.name, synchronous=synchronous)
    load(journal)
    assert [call for call in disk.calls if call[0] in ("write", "sync")][-1] == ("sync", "wal")
    journal.close()


def test_normal_mode_does_not_sync_a_commit(path: str, disk: Disk) -> None:
    journal = SqliteJournal(path, vfs=disk.name, synchronous="NORMAL")
    load(journal)
    journal.commit(stored(an_image(1)))
    disk.calls.clear()
    journal.commit(stored(an_image(2)))
    assert ("write", "wal") in disk.calls
    assert ("sync", "wal") not in disk.calls
    journal.close()


def test_start_on_a_full_disk_may_be_repeated(path: str, disk: Disk) -> None:
    start(path).close()
    disk.fail("write", system_errno=errno.ENOSPC)
    journal = SqliteJournal(path, vfs=disk.name)
    with pytest.raises(JournalFullError):
        load(journal)
    recovered = load(journal)
    assert recovered.epoch == 2
    journal.close()


@pytest.mark.parametrize("system_errno", NO_SPACE)
def test_no_room_for_a_new_journal_is_a_full_disk_too(path: str, disk: Disk, system_errno: int) -> None:
    disk.fail("write", 3, system_errno=system_errno)
    journal = SqliteJournal(path, vfs=disk.name)
    with pytest.raises(JournalFullError):
        load(journal)
    assert load(journal).epoch == 1
    journal.close()


def test_full_disk_at_a_checkpoint_loses_nothing(path: str, disk: Disk) -> None:
    journal = SqliteJournal(path, vfs=disk.name, wal_bytes_checkpoint=1)
    load(journal)
    # The log is so far over its limit that the commit folds it in: that this fails is not its failure.
    disk.fail("write", system_errno=errno.ENOSPC, for_ever=True, on="db")
    journal.commit(Changes(sequence=1))
    with pytest.raises(JournalFullError):
        journal.checkpoint_if_due()
    assert disk.failures == 2
    disk.heal()
    assert journal.checkpoint_if_due()
    journal.close()


FILL = """
import resource, signal, sys
from support.journals import an_image, load, stored
from stoker.broker.core.effects import Changes
from stoker.broker.journal import JournalFullError
from stoker.broker.sqlite import SqliteJournal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = SqliteJournal(sys.argv[1], wal_bytes_checkpoint=50_000)
load(journal)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
number = 0
try:
    while True:
        journal.commit(stored(an_image(number + 1, reason="x" * 2000)))
        number += 1
except JournalFullError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.commit(Changes(sequence=number))
print(number)
"""


@pytest.mark.slow
def test_real_limit_on_file_sizes_is_a_full_disk(path: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FILL, path],
        check=True,
        env={**os.environ, "PYTHONPATH": python_path(TESTS)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert numbers_after_restart(path) == list(range(1, int(ended.stdout) + 1)) != []


def workload(path: str, vfs: str, done: list[int]) -> None:
    """Starts, commits of all kinds, a checkpoint and an end; `done` gets what was confirmed."""
    journal = SqliteJournal(path, vfs=vfs, wal_bytes_checkpoint=20_000)
    try:
        load(journal)
        for number in range(1, 6):
            journal.commit(stored(an_image(number, reason="x" * 2000)))
            done.append(number)
            journal.commit(Changes(outcomes=[an_outcome(number, 1)], sequence=number))
            journal.checkpoint_if_due()
    finally:
        journal.close()


@pytest.mark.slow
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for-ever"])
@pytest.mark.parametrize("system_errno", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_whatever_call_fails_what_was_confirmed_is_there(
    tmp_path: Path, disk: Disk, operation: str, system_errno: int, for_ever: bool
) -> None:
    for nth in range(1, 10_000):
        path = str(tmp_path / f"{nth}.db")
        confirmed: list[int] = []
        disk.failures = 0
        disk.fail(operation, nth, system_errno=system_errno, for_ever=for_ever)
        try:
            workload(path, disk.name, confirmed)
        except (JournalBrokenError, JournalFullError):
            assert disk.failures
        disk.heal()
        after = numbers_after_restart(path)
        # One more may be there than was confirmed: an unclear outcome, not a loss.
        assert after in (confirmed, [*confirmed, len(confirmed) + 1])
        if not disk.failures:
            assert nth > 1
            return
    raise AssertionError("the workload never ran without a fault")
