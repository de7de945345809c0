"""A hang-up of the terminal, told from a SIGHUP that somebody sends."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Self

import pytest

pytestmark = pytest.mark.slow

# Opening a terminal makes it that of a session leader which has none.
PROGRAM = """
import os, signal, sys
from stoker.worker.terminal import Terminal
if sys.argv[1]:
    os.open(sys.argv[1], os.O_RDWR)
terminal = Terminal()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
print("heeded" if terminal.is_heeded else "ignored", flush=True)
while True:
    signal.sigwait({signal.SIGHUP})
    print("hung up" if terminal.has_hung_up() else "meant", flush=True)
"""


class Watched:
    """A process in a session of its own that says what it takes each SIGHUP for."""

    def __init__(self, terminal: str, *, ignored: bool = False) -> None:
        # Whoever runs the tests may be one that ignores hang-ups itself.
        heeding = ["env", "--default-signal=HUP"]
        command = [sys.executable, "-c", PROGRAM, terminal]
        self.process = subprocess.Popen(
            [*(["nohup"] if ignored else heeding), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()


@pytest.fixture
def terminal() -> Iterator[tuple[io.FileIO, str]]:
    """The other end of a terminal, whose closing is a hang-up, and the terminal's name."""
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    with io.FileIO(master) as other_end:
        yield other_end, name


def test_terminal_that_goes_away_is_a_hang_up(terminal: tuple[io.FileIO, str]) -> None:
    other_end, name = terminal
    with Watched(name) as watched:
        assert watched.says() == "heeded"
        watched.process.send_signal(signal.SIGHUP)
        assert watched.says() == "meant"
        other_end.close()
        assert watched.says() == "hung up"
        watched.process.send_signal(signal.SIGHUP)
        assert watched.says() == "meant"


def test_without_a_terminal_each_is_meant() -> None:
    with Watched("") as watched:
        assert watched.says() == "heeded"
        for _ in range(2):
            watched.process.send_signal(signal.SIGHUP)
            assert watched.says() == "meant"


def test_hang_up_is_not_heeded_where_it_was_ignored_before() -> None:
    with Watched("", ignored=True) as watched:
        assert watched.says() == "ignored"
