"""One request to stop, however it arrives: at a terminal, at every process at once, more than once."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.pools import is_alive
from support.stack import APPS, START_S, Stack
from support.waiting import wait_until

from stoker import JobHandle
from stoker.proto.errors import StokerError
from stoker.worker import process

pytestmark = pytest.mark.slow

JOB_S = 1.0
CTRL_C = b"\x03"

IN_FOREGROUND = ("sh", "-c", 'terminal=$1; shift; exec "$@" <"$terminal"', "sh")
"""The first terminal that the leader of a new session opens is the one which rules it."""


class Terminal:
    """A `stoker up` in the foreground of a terminal of its own."""

    def __init__(self, keeper: subprocess.Popen[bytes], keys: int) -> None:
        self.keeper = keeper
        self._keys = keys

    def press_ctrl_c(self) -> None:
        os.write(self._keys, CTRL_C)

    def tree(self) -> list[int]:
        """Pids of the keeper and of all that descends from it."""
        stats, family = list(process.all_stats()), {self.keeper.pid}
        while joining := {each.pid for each in stats if each.parent in family} - family:
            family |= joining
        return sorted(family)

    def terminate_all(self) -> None:
        """TERM to everything that is stoker's. What handlers started could not be blamed for heeding it."""
        for pid in self.tree():
            if Path(f"/proc/{pid}/comm").read_text().strip() not in ("sh", "sleep"):
                os.kill(pid, signal.SIGTERM)


@contextmanager
def up(stack: Stack) -> Generator[Terminal]:
    keys, screen = os.openpty()
    paths = [f"--socket={stack.socket}", f"--data={stack.data}"]
    command = [sys.executable, "-m", "stoker.cli.main", "up", "stopping:app", "--workers=2", *paths]
    with (stack.directory / "up.log").open("ab") as log:
        keeper = subprocess.Popen(
            [*IN_FOREGROUND, os.ttyname(screen), *command],
            cwd=APPS,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Terminal(keeper, keys)
    finally:
        keeper.kill()
        keeper.wait()
        os.close(keys)
        os.close(screen)


def press_twice(terminal: Terminal) -> None:
    terminal.press_ctrl_c()
    terminal.press_ctrl_c()


def terminate_all_twice(terminal: Terminal) -> None:
    terminal.terminate_all()
    terminal.terminate_all()


def stop_group_and_keeper(terminal: Terminal) -> None:
    os.killpg(terminal.keeper.pid, signal.SIGINT)
    terminal.keeper.terminate()


def has_workers(stack: Stack) -> bool:
    try:
        return stack.idle_count() == 2
    except StokerError:
        return False


def begun(stack: Stack) -> list[JobHandle]:
    """One job in Python and one in a program, both running."""
    marks = [stack.directory / name for name in ("nap", "shell")]
    jobs = [stack.client.enqueue(mark.name, [str(mark), JOB_S]) for mark in marks]
    wait_until(lambda: all(mark.exists() for mark in marks), "both run", deadline_s=START_S)
    return jobs


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(press_twice, id="ctrl-c twice at once"),
        pytest.param(terminate_all_twice, id="every process twice"),
        pytest.param(stop_group_and_keeper, id="group and keeper"),
    ],
)
def test_one_request_is_one_drain(short_directory: Path, stop: Callable[[Terminal], None]) -> None:
    with Stack(short_directory) as stack, up(stack) as terminal:
        wait_until(lambda: has_workers(stack), "the pool is there", deadline_s=START_S)
        jobs = begun(stack)
        tree = terminal.tree()
        stop(terminal)
        assert terminal.keeper.wait(20) == 0
        assert not any(map(is_alive, tree))
        stack.start_broker()
        shown = [stack.client.show(job.id) for job in jobs]
        assert [[row["outcome"] for row in job["history"]] for job in shown] == [["ok"], ["ok"]]
        assert [(job["state"], job["charged"]) for job in shown] == [("done", 0)] * 2
