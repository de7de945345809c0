"""Effects exactly once through workers that kill themselves around the commit: `once` with real databases.

`make rounds` runs 500 kills for each database, an ordinary run 25.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import postgres
from support.apps.shop import connect
from support.stack import Stack

from stoker import OnceError, prune_once
from stoker.worker.once import once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """How many workers kill themselves after the commit."""
    rounds = request.config.getoption("--rounds")
    assert isinstance(rounds, int)
    return rounds * 5 // 2


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[str]:
    """How to connect to an application's database that has a table of effects and nothing else."""
    if request.param == "sqlite":
        path = str(short_directory / "shop.db")
        with closing(sqlite3.connect(path)) as connection:
            # So that readers do not disturb; and a synced commit would only make this slower.
            connection.execute("PRAGMA journal_mode = WAL")
        make_effects(path)
        yield path
        return
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if not postgres.is_installed():
        pytest.skip("PostgreSQL is not installed")
    with postgres.running(short_directory) as database:
        make_effects(database)
        yield database


def make_effects(database: str) -> None:
    with closing(connect(database)) as connection:
        connection.cursor().execute("CREATE TABLE effects (id VARCHAR(128) NOT NULL)")
        connection.commit()


def rows(database: str, statement: str) -> list[str]:
    with closing(connect(database)) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return [str(row[0]) for row in cursor.fetchall()]


def test_effects_are_made_once_through_kills_around_the_commit(
    stack: Stack, database: str, kills: int
) -> None:
    stack.start_pool("shop:app", 4)
    marks = stack.directory / "marks"
    marks.mkdir()
    dies = ["after"] * kills + ["before"] * (kills // 5)
    jobs = [stack.client.enqueue("charge", [database, str(marks), when]) for when in dies]
    outcomes = [job.wait(timeout_s=900) for job in jobs]
    assert {outcome.state for outcome in outcomes} == {"done"}
    assert {stack.client.show(job.id)["crashes"] for job in jobs} == {1}
    # Killed after the commit: the attempt that ended well had nothing left to do.
    assert [outcome.result for outcome in outcomes] == [when == "before" for when in dies]
    assert sorted(rows(database, "SELECT id FROM effects")) == sorted(job.id for job in jobs)


def test_several_workers_may_make_the_table_at_once(database: str) -> None:
    answers: list[bool] = []
    together = threading.Barrier(4)

    def first_use(number: int) -> None:
        with closing(connect(database)) as connection:
            together.wait()
            answers.append(once(connection, f"job-{number}"))
            connection.commit()

    threads = [threading.Thread(target=first_use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 4
    assert len(rows(database, "SELECT job_id FROM stoker_once")) == 4


@pytest.mark.parametrize(("end", "second"), [("commit", False), ("rollback", True)])
def test_second_attempt_waits_for_the_first_and_goes_by_how_it_ends(
    database: str, end: str, second: bool
) -> None:
    answers: list[bool] = []
    is_asking = threading.Event()

    def overlap() -> None:
        with closing(connect(database)) as connection:
            is_asking.set()
            answers.append(once(connection, "a"))
            connection.commit()

    with closing(connect(database)) as connection:
        assert once(connection, "a")
        thread = threading.Thread(target=overlap)
        thread.start()
        is_asking.wait()
        getattr(connection, end)()
        thread.join()
    assert answers == [second]


def test_what_the_application_did_before_is_still_its_own(database: str) -> None:
    with closing(connect(database)) as connection:
        connection.cursor().execute("INSERT INTO effects VALUES ('x')")
        assert once(connection, "a")
        connection.rollback()
        assert once(connection, "a")
        connection.commit()
        assert prune_once(connection, older_than_s=60) == 0
    assert rows(database, "SELECT id FROM effects") == []


def autocommitting(database: str) -> Any:
    connection = connect(database)
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    else:
        connection.autocommit = True
    return connection


def test_connection_that_commits_each_statement_is_refused(database: str) -> None:
    with closing(autocommitting(database)) as connection:
        with pytest.raises(OnceError, match="begin a transaction"):
            once(connection, "a")
        connection.execute("BEGIN")
        assert once(connection, "a")
        connection.execute("COMMIT")
    assert rows(database, "SELECT job_id FROM stoker_once") == ["a"]
