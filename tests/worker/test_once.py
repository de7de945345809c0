"""`once`: a row in the application's own transaction, true together with the effect or not at all."""

import sqlite3
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stoker import CurrentJob, OnceError, prune_once
from stoker.worker.once import CREATE, once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def recorded(connection: sqlite3.Connection) -> list[str]:
    return [id for (id,) in connection.execute("SELECT job_id FROM stoker_once ORDER BY job_id")]


def test_first_time_is_true_and_every_later_one_false(connection: sqlite3.Connection) -> None:
    assert [once(connection, "a"), once(connection, "b"), once(connection, "a")] == [True, True, False]
    connection.commit()
    assert once(connection, "a") is False


def test_record_goes_with_its_transaction(connection: sqlite3.Connection, path: Path) -> None:
    assert once(connection, "a")
    connection.rollback()
    assert once(connection, "a")
    connection.commit()
    with closing(sqlite3.connect(path)) as other:
        assert recorded(other) == ["a"]


def test_nothing_of_the_application_is_committed(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("CREATE TABLE effects (id TEXT)")
    connection.execute("INSERT INTO effects VALUES ('x')")
    once(connection, "a")
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (0,)


def test_table_that_was_rolled_back_is_made_again(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    assert once(connection, "a")
    connection.rollback()
    assert once(connection, "a")
    assert recorded(connection) == ["a"]


def test_second_of_two_that_overlap_waits_and_is_told_false(
    connection: sqlite3.Connection, path: Path
) -> None:
    assert once(connection, "a")
    answers: list[bool] = []
    is_asking = threading.Event()

    def second() -> None:
        with closing(sqlite3.connect(path, timeout=30)) as other:
            is_asking.set()
            answers.append(once(other, "a"))
            other.commit()

    thread = threading.Thread(target=second)
    thread.start()
    is_asking.wait()
    connection.commit()
    thread.join()
    assert answers == [False]


def test_second_of_two_that_will_not_wait_fails_and_changes_nothing(
    connection: sqlite3.Connection, path: Path
) -> None:
    assert once(connection, "a")
    with (
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        once(other, "b")
    connection.commit()
    assert recorded(connection) == ["a"]


def test_connection_that_commits_each_statement_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(OnceError, match="begin a transaction"):
            once(connection, "a")
        connection.execute("BEGIN")
        assert once(connection, "a")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has `autocommit` since Python 3.12")
def test_autocommit_of_newer_releases_is_refused_too(path: Path) -> None:
    options: dict[str, Any] = {"autocommit": True}
    with closing(sqlite3.connect(path, **options)) as connection, pytest.raises(OnceError):
        once(connection, "a")
    options = {"autocommit": False}
    with closing(sqlite3.connect(path, **options)) as connection:
        assert once(connection, "a")


def test_rows_of_another_form_are_no_matter(connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda cursor, row: {"row": row}
    assert [once(connection, "a"), once(connection, "a")] == [True, False]


def test_job_records_its_own_id(connection: sqlite3.Connection) -> None:
    job = CurrentJob("job-1", 2, (1, 7), "charge", "default", {}, 0.0)
    assert [job.once(connection), job.once(connection)] == [True, False]
    assert recorded(connection) == ["job-1"]


def test_pruning_forgets_the_old_and_keeps_the_young(connection: sqlite3.Connection) -> None:
    once(connection, "young")
    once(connection, "old")
    connection.execute("UPDATE stoker_once SET recorded_at_ms = recorded_at_ms - 100000 WHERE job_id = 'old'")
    assert prune_once(connection, older_than_s=50) == 1
    assert recorded(connection) == ["young"]


def test_pruning_before_the_first_use_finds_nothing(connection: sqlite3.Connection) -> None:
    assert prune_once(connection, older_than_s=1) == 0


@pytest.mark.parametrize("older_than_s", [0, -1, float("nan"), "1", True])
def test_pruning_without_a_sane_age_is_refused(connection: sqlite3.Connection, older_than_s: Any) -> None:
    with pytest.raises(ValueError, match="older_than_s"):
        prune_once(connection, older_than_s=older_than_s)


# --- other drivers --------------------------------------------------------------------------------------


class Derived(sqlite3.Connection):
    """As an application may have one."""


def test_driver_of_a_derived_connection_is_found(path: Path) -> None:
    with closing(sqlite3.connect(path, factory=Derived)) as connection:
        assert once(connection, "a")


class Cursor:
    """Translates to what SQLite understands, and keeps what it was given."""

    def __init__(self, cursor: sqlite3.Cursor, said: list[tuple[str, Any]]) -> None:
        self._cursor = cursor
        self._said = said

    def execute(self, statement: str, parameters: Any = ()) -> None:
        self._said.append((statement, parameters))
        plain = statement.replace("%s", "?").replace("%(job_id)s", ":job_id").replace("%(at_ms)s", ":at_ms")
        self._cursor.execute(plain, parameters)

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def close(self) -> None:
        self._cursor.close()


class Foreign:
    """A connection of a driver that nobody has heard of."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.said: list[tuple[str, Any]] = []

    def cursor(self) -> Cursor:
        return Cursor(self._connection.cursor(), self.said)


@pytest.fixture
def foreign(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> Foreign:
    module = types.ModuleType("foreigndb")
    monkeypatch.setitem(sys.modules, "foreigndb", module)
    monkeypatch.setattr(Foreign, "__module__", "foreigndb.connections")
    return Foreign(connection)


@pytest.mark.parametrize(
    ("paramstyle", "mark"),
    [("qmark", "?"), ("format", "%s"), ("numeric", ":1"), ("named", ":job_id"), ("pyformat", "%(job_id)s")],
)
def test_every_way_of_writing_parameters_is_spoken(
    foreign: Foreign, connection: sqlite3.Connection, paramstyle: str, mark: str
) -> None:
    connection.execute(CREATE)
    setattr(sys.modules["foreigndb"], "paramstyle", paramstyle)  # noqa: B010 - modules have no such field
    assert [once(foreign, "a"), once(foreign, "a"), once(foreign, "b")] == [True, False, True]
    assert all(mark in statement for statement, _ in foreign.said)
    connection.execute("UPDATE stoker_once SET recorded_at_ms = 0 WHERE job_id = 'a'")
    assert prune_once(foreign, older_than_s=60) == 1
    assert recorded(connection) == ["b"]


def test_foreign_database_is_told_which_table_to_make(foreign: Foreign) -> None:
    with pytest.raises(OnceError, match="CREATE TABLE IF NOT EXISTS stoker_once"):
        once(foreign, "a", paramstyle="qmark")


def test_unknown_paramstyle_is_to_be_said(foreign: Foreign, connection: sqlite3.Connection) -> None:
    connection.execute(CREATE)
    with pytest.raises(OnceError, match="paramstyle="):
        once(foreign, "a")
    with pytest.raises(ValueError, match="one of qmark"):
        once(foreign, "a", paramstyle="dollar")
    assert once(foreign, "a", paramstyle="format")


class Later:
    def cursor(self) -> None:
        """Never called."""

    async def __aenter__(self) -> None:
        """Never called."""


@pytest.mark.parametrize("connection", [Later(), object()])
def test_what_is_no_blocking_connection_is_refused(connection: object) -> None:
    with pytest.raises(TypeError, match="connection"):
        once(connection, "a")
