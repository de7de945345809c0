"""A journal that is removed or replaced under a real broker: it ends, and a start does not pass over the loss."""

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
