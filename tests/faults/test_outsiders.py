"""Somebody else at the files: a shell on the open journal is turned away, and harms nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SHELL = """
import sqlite3, sys
shell = sqlite3.connect(sys.argv[1], timeout=0.2, isolation_level=None)
try:
    print(shell.execute(sys.argv[2]).fetchall())
except sqlite3.OperationalError as error:
    print(error)
"""


def shell(path: Path, statement: str) -> str:
    """What an outsider is told who asks the file itself, with the SQLite of the system."""
    command = [sys.executable, "-c", SHELL, str(path), statement]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip()


STATEMENTS = (
    "SELECT count(*) FROM jobs",
    "BEGIN EXCLUSIVE",
    "DELETE FROM jobs",
    "PRAGMA wal_checkpoint(TRUNCATE)",
)


def test_shell_on_the_open_journal_is_turned_away_and_harms_nothing(stack: Stack) -> None:
    jobs = [stack.client.enqueue("kept")]
    for statement in STATEMENTS:
        assert "locked" in shell(stack.data / "journal.db", statement)
        jobs.append(stack.client.enqueue("kept"))
    stack.kill_broker()
    stack.start_broker()
    assert {stack.client.show(job.id)["state"] for job in jobs} == {"ready"}


def test_shell_may_look_when_no_broker_runs(stack: Stack) -> None:
    stack.client.enqueue("kept")
    assert stack.broker is not None
    stack.broker.terminate()
    stack.broker.wait(20)
    assert shell(stack.data / "journal.db", "SELECT kind, state FROM jobs") == "[('kept', 'ready')]"


def test_reading_command_without_a_broker_leaves_no_file_behind(short_directory: Path) -> None:
    data = short_directory / "data"
    data.mkdir(mode=0o700)
    for verb in ("status", "doctor"):
        command = [sys.executable, "-m", "stoker.cli.main", verb, "--data", str(data)]
        command += ["--socket", str(short_directory / "broker.sock")]
        ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
        assert ran.returncode in (0, 5), ran.stderr
    assert list(data.iterdir()) == []
    assert [path.name for path in short_directory.iterdir()] == ["data"]
