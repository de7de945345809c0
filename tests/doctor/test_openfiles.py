"""A broker that runs, and files that are no longer those it has open."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.journals import load

from stoker.broker.files import OwnerLock
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.whereabouts import JournalLostError
from stoker.doctor.finding import Level
from stoker.doctor.openfiles import broker_of, check_open_files

PID = os.getpid()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Of a broker that is this very process."""
    lock = OwnerLock(str(tmp_path))
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    load(journal)
    yield tmp_path
    with suppress(JournalLostError):
        journal.close()
    lock.release()


def replace(path: Path) -> None:
    shutil.copy2(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def test_broker_of_a_directory_is_who_has_its_lock(data: Path) -> None:
    assert broker_of(str(data)) == PID


def test_lock_that_nobody_holds_or_that_is_not_there_is_no_broker(tmp_path: Path) -> None:
    assert broker_of(str(tmp_path)) == 0
    OwnerLock(str(tmp_path)).release()
    assert broker_of(str(tmp_path)) == 0


def test_log_in_its_place_is_no_finding(data: Path) -> None:
    found = [finding.what for finding in check_open_files(str(data), PID)]
    assert not any("-wal" in what for what in found)


@pytest.mark.parametrize("lose", [Path.unlink, replace])
def test_log_that_is_another_is_an_error_and_says_where_the_right_one_is(
    data: Path, lose: Callable[[Path], object]
) -> None:
    lose(data / "journal.db-wal")
    finding = list(check_open_files(str(data), PID))[-1]
    assert finding.level is Level.ERROR
    assert f"which is {data / 'journal.db-wal'} (deleted)" in finding.what


def test_process_that_has_ended_has_lost_nothing(data: Path) -> None:
    (data / "journal.db").unlink()
    assert list(check_open_files(str(data), 2**22 + 1)) == []
