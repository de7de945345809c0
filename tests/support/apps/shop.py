"""A handler with an effect in a database of the application's own, killed before or after its commit."""

import os
import signal
import sqlite3
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stoker import App, Retry, current_job

app = App()

# Once, where workers are forked from; by name, because it is not there for every checker and every run.
psycopg: Any = import_module("psycopg") if find_spec("psycopg") else None

calls = 0
"""Of this worker."""


def connect(database: str) -> Any:
    """A connection to a file of SQLite, or by a libpq text to PostgreSQL."""
    if "host=" not in database:
        return sqlite3.connect(database, timeout=60)
    return psycopg.connect(database)


@app.job(crashes_max=3, attempts_max=1000)
def charge(database: str, marks: str, dies: str) -> bool:
    """Make the effect in one transaction with its record, and kill the worker once, before or after the commit."""
    global calls
    calls += 1
    if calls == 1:
        # A worker that dies before it has finished anything is taken for one of a crash loop.
        raise Retry(after_s=0)
    job = current_job()
    with closing(connect(database)) as connection:
        is_first = job.once(connection)
        if is_first:
            connection.cursor().execute(f"INSERT INTO effects VALUES ('{job.id}')")
        if dies == "before":
            die_once(marks, job.id)
        connection.commit()
    if dies == "after":
        die_once(marks, job.id)
    return is_first


def die_once(marks: str, job_id: str) -> None:
    """SIGKILL to this process, the first time that it is asked for a job."""
    mark = Path(marks) / job_id
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
