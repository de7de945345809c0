"""`job.once(connection)`: effects in the application's database, made once however often the job runs.

    with sqlite3.connect("shop.db") as connection:      # commits at the end, rolls back on an exception
        if current_job().once(connection):
            connection.execute("UPDATE accounts SET ...")

It inserts the job's id into the table `stoker_once` and says whether the id is new. Row and effects are
of one transaction, the application's, so both are there or neither is:

    killed before the commit   no row: the next attempt does it
    killed after the commit    the row is there: the next attempt is told False, and only has to return
    rolled back                no row

The id, not the token: a later attempt has another token and shall know of the earlier one. So an id that
the caller chooses stands for its effect for as long as the row is there, also when it is enqueued anew.

Two attempts may overlap, where nobody kills the older one (see `docs/guarantees.md`). The key is unique,
so the second insert waits for the first transaction to end, and then sees its row or takes its place; or
it fails with the error of the database ("database is locked", a serialization failure, a duplicate key),
which is an ordinary failed attempt.

The table is made at first use in SQLite and PostgreSQL, where that is part of the transaction like any
other statement. In PostgreSQL a lock keeps two that do so at once apart; and it is asked first whether
the table is there, because an error would end the transaction. Elsewhere CREATE TABLE commits what is
open, so nothing is made: the error says which statement to run beforehand.

A connection that commits each statement by itself is refused, because the row would be true before the
effect. Never in here: a commit, a rollback, a savepoint.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from ..proto.errors import StokerError

CREATE = (
    "CREATE TABLE IF NOT EXISTS stoker_once "
    "(job_id VARCHAR(128) NOT NULL PRIMARY KEY, recorded_at_ms BIGINT NOT NULL)"
)
"""Ids are case-sensitive, so the column must be: where text is not by itself, give it a binary collation."""

_LOCK = "SELECT pg_advisory_xact_lock(126943922709874)"
"""The number is `stoker` in ASCII."""

_INSERT = "INSERT INTO stoker_once (job_id, recorded_at_ms) VALUES ({job_id}, {at_ms})"
_FIND = "SELECT 1 FROM stoker_once WHERE job_id = {job_id}"
_PRUNE = "DELETE FROM stoker_once WHERE recorded_at_ms < {at_ms}"

_SQLITE = frozenset({"sqlite3", "pysqlite3"})
_POSTGRES = frozenset({"psycopg", "psycopg2", "psycopg2cffi", "pg8000", "pgdb"})

_IS_THERE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'stoker_once'",
    "postgres": "SELECT 1 WHERE to_regclass('stoker_once') IS NOT NULL",
}

_MARKS: dict[str, tuple[str, str]] = {
    "qmark": ("?", "?"),
    "format": ("%s", "%s"),
    "numeric": (":1", ":2"),
    "named": (":job_id", ":at_ms"),
    "pyformat": ("%(job_id)s", "%(at_ms)s"),
}
"""Placeholders of the two parameters, by the names that DB-API 2 gives to the ways of writing them."""


class OnceError(StokerError):
    """`once` cannot keep its promise with this connection. Nothing was recorded."""


class _Driver(NamedTuple):
    """What is known of a connection's module."""

    family: str
    paramstyle: str


def once(connection: Any, job_id: str, *, paramstyle: str | None = None) -> bool:
    """Record a job in the connection's transaction; True if it was not there before. See the module."""
    driver = _driver(connection, paramstyle)
    _refuse_autocommit(connection, driver)
    parameters = {"job_id": job_id, "at_ms": time.time_ns() // 1_000_000}
    with closing(connection.cursor()) as cursor:
        if driver.family not in _IS_THERE:
            return _find_or_insert(cursor, driver, parameters)
        _make_table(cursor, driver)
        if driver.family == "sqlite":
            _execute(cursor, driver, _INSERT.replace("INSERT", "INSERT OR IGNORE", 1), parameters)
            return bool(cursor.rowcount == 1)
        # By the row, because in a pipeline the count is not known yet.
        _execute(cursor, driver, _INSERT + " ON CONFLICT (job_id) DO NOTHING RETURNING job_id", parameters)
        return cursor.fetchone() is not None


def prune_once(connection: Any, *, older_than_s: float, paramstyle: str | None = None) -> int:
    """Forget the jobs that were recorded so long ago, in the connection's transaction; how many.

    A job that runs again after it was forgotten makes its effects again. So keep the rows for longer
    than a job can come back: its delays and retries, and the retention of dead jobs, which can be kicked.
    """
    if type(older_than_s) not in (int, float) or not 0 < older_than_s < 1e12:
        raise ValueError(f"older_than_s must be a positive number of seconds, not {older_than_s!r}")
    driver = _driver(connection, paramstyle)
    with closing(connection.cursor()) as cursor:
        if driver.family in _IS_THERE and not _is_there(cursor, driver):
            return 0
        before_ms = round((time.time() - older_than_s) * 1000)
        _execute(cursor, driver, _PRUNE, {"at_ms": before_ms})
        return int(cursor.rowcount)


# --- the table -------------------------------------------------------------------------------------------


def _is_there(cursor: Any, driver: _Driver) -> bool:
    cursor.execute(_IS_THERE[driver.family])
    return cursor.fetchone() is not None


def _make_table(cursor: Any, driver: _Driver) -> None:
    if _is_there(cursor, driver):
        return
    if driver.family == "postgres":
        cursor.execute(_LOCK)
    cursor.execute(CREATE)


def _find_or_insert(cursor: Any, driver: _Driver, parameters: dict[str, Any]) -> bool:
    """For any other database: in plain SQL, so that two that overlap end in a duplicate key."""
    try:
        _execute(cursor, driver, _FIND, {"job_id": parameters["job_id"]})
    except Exception as error:
        raise OnceError(
            f"cannot read the table stoker_once ({error}); make it beforehand: {CREATE}"
        ) from error
    if cursor.fetchone() is not None:
        return False
    _execute(cursor, driver, _INSERT, parameters)
    return True


def _execute(cursor: Any, driver: _Driver, statement: str, parameters: dict[str, Any]) -> None:
    marks = dict(zip(("job_id", "at_ms"), _MARKS[driver.paramstyle], strict=True))
    if driver.paramstyle == "numeric" and len(parameters) == 1:
        marks = dict.fromkeys(marks, ":1")
    is_by_name = driver.paramstyle in ("named", "pyformat")
    cursor.execute(statement.format(**marks), parameters if is_by_name else tuple(parameters.values()))


# --- the connection ------------------------------------------------------------------------------------


def _driver(connection: Any, paramstyle: str | None) -> _Driver:
    if not hasattr(connection, "cursor"):
        raise TypeError(f"once takes a DB-API 2 connection, not {type(connection).__qualname__}")
    if hasattr(connection, "__aenter__") and not hasattr(connection, "__enter__"):
        raise TypeError("once takes a connection that blocks; run it and the effects in a thread")
    if paramstyle is not None and paramstyle not in _MARKS:
        raise ValueError(f"paramstyle must be one of {', '.join(_MARKS)}, not {paramstyle!r}")
    for name in _modules(connection):
        found = getattr(sys.modules.get(name), "paramstyle", None)
        if isinstance(found, str) and found in _MARKS:
            return _Driver(_family(name), paramstyle or found)
    if paramstyle is None:
        raise OnceError(
            f"cannot tell how {type(connection)!r} writes parameters; say it: "
            f"once(connection, paramstyle=...), one of {', '.join(_MARKS)}"
        )
    return _Driver("other", paramstyle)


def _modules(connection: Any) -> Iterator[str]:
    """The modules of its classes, which an application may have derived, and the packages they are in."""
    for kind in type(connection).__mro__:
        name = kind.__module__
        while name:
            yield name
            name = name.rpartition(".")[0]


def _family(module: str) -> str:
    root = module.partition(".")[0]
    return "sqlite" if root in _SQLITE else "postgres" if root in _POSTGRES else "other"


def _refuse_autocommit(connection: Any, driver: _Driver) -> None:
    commits_each = getattr(connection, "autocommit", None) is True
    if driver.family == "sqlite" and getattr(connection, "autocommit", None) is not False:
        # Before Python 3.12, and by default later, this is what says so.
        commits_each = commits_each or connection.isolation_level is None
    if commits_each and not _is_in_transaction(connection):
        raise OnceError(
            "this connection commits each statement by itself, so the record would be true before the "
            "effect: begin a transaction first"
        )


def _is_in_transaction(connection: Any) -> bool:
    if getattr(connection, "in_transaction", None) is True:
        return True
    # libpq's word; 0 is idle.
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    return isinstance(status, int) and status != 0
