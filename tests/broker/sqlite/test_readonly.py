"""A journal opened read-only: what would change it is refused, whatever SQLite is asked to do."""

from pathlib import Path

import apsw
import pytest
from support.journals import an_image, load, stored

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
