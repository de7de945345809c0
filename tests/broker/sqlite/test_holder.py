"""Whether a broker has a journal open, without being in its way."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.journals import load

from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.holder import holder

OPEN = (
    "import sys; from stoker.broker.sqlite import SqliteJournal\n"
    "journal = SqliteJournal(sys.argv[1]); journal.load(boot_id='b', boot_ms=1, wall_ms=1)\n"
    "print('open', flush=True); sys.stdin.read()"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "journal.db")
    journal = SqliteJournal(path)
    load(journal)
    journal.close()
    return path


@pytest.fixture
def opener(path: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", OPEN, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process
        process.kill()


def test_journal_that_nobody_has_open_has_no_holder(path: str) -> None:
    assert holder(path) is None


@pytest.mark.slow
def test_process_that_has_it_open_is_named_and_keeps_it(path: str, opener: subprocess.Popen[bytes]) -> None:
    assert [holder(path), holder(path)] == [opener.pid, opener.pid]


@pytest.mark.slow
def test_killed_process_holds_nothing(path: str, opener: subprocess.Popen[bytes]) -> None:
    opener.kill()
    opener.wait()
    assert holder(path) is None


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        holder(str(tmp_path / "none"))
