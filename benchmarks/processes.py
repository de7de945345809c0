"""Processes of a benchmark: nothing that was started outlives it, and nothing is waited for without a limit.

TERM, INT and HUP end the run as an exception, so that everything is ended in its order: `timeout` and
Ctrl-C leave nothing behind. What does not end in time is killed, with all it has started: orphans become
children of this process, which is a subreaper. Should this process itself be killed, what it started
gets a TERM from the kernel.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

STOP_S = 15.0
"""From a TERM to the end of a broker and its pool, which have nothing to finish."""

KILL_S = 5.0

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class Overdue(SystemExit):
    """Something took longer than it may. Not an Exception: nothing on the way shall make it good."""


@contextmanager
def nothing_left() -> Generator[None]:
    """Whatever the block started, directly or not, has ended after it, however it ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        yield
    finally:
        _kill_children()


def _end(number: int, frame: FrameType | None) -> None:
    # Another one must not interrupt what the first has set going.
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _kill_children() -> None:
    """Until there are none: what a killed one leaves behind becomes our child before we hear of its end."""
    end = time.monotonic() + KILL_S
    while (children := _children()) and time.monotonic() < end:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.005)


def _children() -> list[int]:
    """Processes whose parent is this one. Only it can reap them, so none of the numbers is anybody else's."""
    own, found = str(os.getpid()), list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            except OSError:
                continue
            if parent == own:
                found.append(int(entry.name))
    return found


@contextmanager
def running(command: Sequence[str], log: Path) -> Generator[None]:
    """A program that runs while the block does; the end of what it said is shown if the block fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - there are no threads here
        )
    try:
        yield
    except (Exception, Overdue):
        sys.stderr.write(log.read_text(errors="backslashreplace")[-4000:])
        raise
    finally:
        _stop(process)


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        print(f"still running {STOP_S:g} s after a TERM, killed: {process.args!r}", file=sys.stderr)
        process.kill()


@contextmanager
def limited(limit_s: float, what: str) -> Generator[None]:
    """Overdue, wherever the block is, if it has not ended by then."""

    def overdue(number: int, frame: FrameType | None) -> None:
        raise Overdue(f"not within {limit_s:g} s: {what}")

    signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def wait_for(condition: Callable[[], bool], poll_s: float = 0.005) -> None:
    """Until it is so. The limit is the caller's, by `limited`."""
    while not condition():
        time.sleep(poll_s)
