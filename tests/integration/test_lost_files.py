"""A journal that is removed, replaced, cut or written over under a real broker: it ends, and no start passes over it."""

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.stack import Stack

from stoker import Client
from stoker.broker.lasterror import LAST_ERROR
from stoker.config.exits import Exit
from stoker.proto.errors import StokerError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

END_S = 15.0
"""A second, and what a loaded host adds."""


def move(path: Path) -> None:
    path.rename(f"{path}.moved")


def replace(path: Path) -> None:
    shutil.copy2(path, f"{path}.copy")
    subprocess.run(["mv", "-f", f"{path}.copy", str(path)], check=True)


def cut_log(stack: Stack) -> None:
    os.truncate(stack.data / "journal.db-wal", 0)


def cut_journal(stack: Stack) -> None:
    os.truncate(stack.data / "journal.db", 4096)


def write_snapshot_over(stack: Stack) -> None:
    """What `cp` does."""
    content = Path(stack.client.snapshot("early").path).read_bytes()
    with (stack.data / "journal.db").open("r+b") as file:
        file.write(content)


DAMAGES = {
    "log cut": (cut_log, "journal.db-wal"),
    "journal cut": (cut_journal, "journal.db"),
    "snapshot written over it": (write_snapshot_over, "journal.db"),
}


def journal_of(stack: Stack) -> Path:
    return stack.data / "journal.db"


def end(stack: Stack) -> int:
    assert stack.broker is not None
    return stack.broker.wait(END_S)


def last_line(stack: Stack) -> str:
    return (stack.directory / "broker.log").read_text().splitlines()[-1]


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
@pytest.mark.parametrize("lose", [move, replace, Path.unlink])
def test_idle_broker_ends_and_the_next_start_is_refused_by_name(
    short_directory: Path, name: str, lose: Callable[[Path], object]
) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("kept", [])
        lose(stack.data / name)
        assert end(stack) == Exit.STORAGE
        assert f"{stack.data / name}: was re" in last_line(stack)
        # Twice: a refusal must not forget what it was for.
        for _ in range(2):
            stack.start_broker(wait=False)
            assert end(stack) == Exit.DATA_REFUSED
            assert str(stack.data / LAST_ERROR) in last_line(stack)


def test_nothing_is_answered_from_the_first_look_on(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        before = [stack.client.enqueue("before", []) for _ in range(3)]
        move(journal_of(stack))
        with Client(stack.socket, timeout_s=1, retry_s=0.5) as client, suppress(StokerError):
            while True:
                client.enqueue("after", [])
        assert end(stack) == Exit.STORAGE
        journal_of(stack).with_name("journal.db.moved").rename(journal_of(stack))
        stack.start_broker()
        assert [stack.client.show(job.id)["state"] for job in before] == ["ready"] * 3


def test_who_goes_on_without_the_lost_files_says_so(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("lost", [])
        for name in ("journal.db", "journal.db-wal"):
            (stack.data / name).unlink()
        assert end(stack) == Exit.STORAGE
        (stack.data / LAST_ERROR).unlink()
        stack.start_broker()
        assert stack.client.status()["epoch"] == 1


def test_loss_in_the_last_moment_is_no_clean_end(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("kept", [])
        assert stack.broker is not None
        move(journal_of(stack))
        stack.broker.terminate()
        assert end(stack) == Exit.STORAGE


def assert_refused(stack: Stack, name: str) -> None:
    assert f"{stack.data / name}: was cut short or written over" in last_line(stack)
    # Twice: a refusal must not forget what it was for.
    for _ in range(2):
        stack.start_broker(wait=False)
        assert end(stack) == Exit.DATA_REFUSED
        assert f"{stack.data / name}: was cut short or written over under the last broker" in last_line(stack)


@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "stopped at once"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_ends_a_broker_that_stores_nothing(
    short_directory: Path, damage: str, is_idle: bool
) -> None:
    do, name = DAMAGES[damage]
    with Stack(short_directory) as stack:
        stack.start_broker()
        for _ in range(5):
            stack.client.enqueue("kept", [])
        assert stack.broker is not None
        do(stack)
        if not is_idle:
            stack.broker.terminate()
        assert end(stack) == Exit.STORAGE
        assert_refused(stack, name)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_ends_a_broker_that_goes_on_storing(short_directory: Path, damage: str) -> None:
    do, name = DAMAGES[damage]
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("before", [])
        do(stack)
        with Client(stack.socket, timeout_s=1, retry_s=0.5) as client, suppress(StokerError):
            while True:
                client.enqueue("after", [])
        assert end(stack) == Exit.STORAGE
        assert_refused(stack, name)


def test_who_goes_on_with_a_cut_log_says_so(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("lost", [])
        cut_log(stack)
        assert end(stack) == Exit.STORAGE
        (stack.data / LAST_ERROR).unlink()
        stack.start_broker()
        assert stack.client.status()["epoch"] == 1
