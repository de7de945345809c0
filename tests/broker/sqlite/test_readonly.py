"""A journal opened read-only: what would change it is refused, whatever SQLite is asked to do."""

import os
import shutil
from pathlib import Path

import apsw
import pytest
from support.journals import an_image, load, stored
from support.other_user import GID, ROOT_ONLY, UID

from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.readonly import read_only


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    load(journal)
    journal.commit(stored(an_image(1)))
    journal.close()
    return tmp_path / "journal.db"


@pytest.mark.parametrize("statement", ["DELETE FROM jobs", "VACUUM", "PRAGMA journal_mode = DELETE"])
def test_statement_that_would_change_it_is_refused(path: Path, statement: str) -> None:
    before = path.read_bytes()
    with read_only(str(path)) as database, pytest.raises(apsw.Error):
        database.run(statement)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["journal.db"]


def test_rows_can_be_read(path: Path) -> None:
    with read_only(str(path)) as database:
        assert database.number("SELECT count(*) FROM jobs") == 1


def test_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(apsw.CantOpenError), read_only(str(tmp_path / "none.db")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_pipe_in_place_of_the_log_is_refused_and_not_waited_for(path: Path) -> None:
    os.mkfifo(f"{path}-wal")
    with pytest.raises(apsw.CantOpenError), read_only(str(path)) as database:
        database.number("SELECT count(*) FROM jobs")


@ROOT_ONLY
def test_owner_of_the_log_stays_whoever_it_is(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "live.db"))
    load(journal)
    journal.commit(stored(an_image(1)))
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path / 'live.db'}{end}", f"{tmp_path / 'journal.db'}{end}")
    journal.close()
    log = f"{tmp_path / 'journal.db'}-wal"
    os.chown(log, UID, GID)
    before = os.stat(log)
    with read_only(str(tmp_path / "journal.db")) as database:
        assert database.number("SELECT count(*) FROM jobs") == 1
    after = os.stat(log)
    assert (after.st_uid, after.st_gid, after.st_ctime_ns) == (UID, GID, before.st_ctime_ns)
