"""The keeper with small programs in place of broker and pool: order, restarts, refusals, reaping."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.waiting import wait_until

from stoker.cli.keeper import SAME_SIGNAL_S
from stoker.worker.supervisor import MOMENT_MS

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys, time
name, directory, code = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = os.open(directory + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def ended(*_):
    global code
    code += 1
    if code < 0:
        return
    os.write(log, (name + " ended\\n").encode())
    sys.exit(0)
signal.signal(signal.SIGTERM, ended)
os.write(log, (name + " " + str(os.getpid()) + "\\n").encode())
if code == 71:
    # As a broker that finds another one in its place.
    sys.exit(code)
if code == 1000:
    code = -1
elif name == "broker":
    os.kill(os.getppid(), signal.SIGRTMIN)
if code >= 0:
    # The other one must be there to be ended: a program that is killed before it can listen says nothing.
    other, give_up_s = {"pool": "broker ", "broker": "pool "}[name], time.monotonic() + 10
    while other not in open(directory + "/log").read() and time.monotonic() < give_up_s:
        time.sleep(0.01)
    sys.exit(code)
while True:
    time.sleep(60)
"""
KEEPER = """
import sys
from stoker.cli.keeper import Keeper, Program
def program(name, code):
    return Program(name, [sys.executable, "-c", sys.argv[1], name, sys.argv[2], code])
advice = {71: "the advice"}
pool, broker = program("pool", sys.argv[3]), program("broker", sys.argv[4])
sys.exit(Keeper(pool, broker, greeting="the greeting", advice=advice).run())
"""
RUNS = "-1"
"""In place of an exit code: does not end by itself."""

STUBBORN = "-2"
"""Ends at the second TERM."""

SILENT = "1000"
"""Runs, and never says that it is ready."""

READY_BIT = 1 << signal.SIGRTMIN - 1
TERM_BIT = 1 << signal.SIGTERM - 1


class Kept:
    """A keeper process, and the lines its programs have written."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory

    def lines(self) -> list[str]:
        log = self.directory / "log"
        return log.read_text().splitlines() if log.exists() else []

    def pids(self, name: str) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith(name) and line[-1].isdigit()]

    def said(self) -> list[str]:
        """What it said, once it has ended."""
        _, said = self.process.communicate(timeout=20)
        return said.decode().splitlines()

    def wait_pids(self, name: str, count: int) -> list[int]:
        return wait_until(
            lambda: self.pids(name)[count - 1 :] and self.pids(name), f"{count} starts of {name}"
        )


@contextmanager
def kept(directory: Path, pool: str = RUNS, broker: str = RUNS) -> Generator[Kept]:
    command = [sys.executable, "-c", KEEPER, PROGRAM, str(directory), pool, broker]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        stop = threading.Timer(30, process.kill)
        stop.start()
        keeper = Kept(process, directory)
        try:
            yield keeper
        finally:
            stop.cancel()
            process.kill()
            process.wait()
            _end_all(keeper)


def _ends_within(process: subprocess.Popen[bytes], moment_s: float) -> bool:
    """Ask it to stop once more; has it ended after a moment?"""
    process.terminate()
    try:
        process.wait(moment_s * 1.2)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end_all(keeper: Kept) -> None:
    """Programs that a killed keeper left behind."""
    for pid in {*keeper.pids("pool"), *keeper.pids("broker")}:
        if _is_alive(pid) and str(keeper.directory) in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)


def _pending(pid: int) -> int:
    """Signals that wait to be fetched."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["ShdPnd"], 16)


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/cmdline") and Path(f"/proc/{pid}/cmdline").read_text() != ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_ends_the_pool_first_and_then_the_broker(number: signal.Signals, tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        keeper.wait_pids("pool", 1)
        keeper.wait_pids("broker", 1)
        keeper.process.send_signal(number)
        assert keeper.process.wait(20) == 0
        assert keeper.lines()[-2:] == ["pool ended", "broker ended"]


@pytest.mark.parametrize("name", ["pool", "broker"])
def test_program_that_was_killed_is_started_again(name: str, tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        (first,) = keeper.wait_pids(name, 1)
        os.kill(first, signal.SIGKILL)
        second = keeper.wait_pids(name, 2)[1]
        assert second != first
        keeper.process.terminate()
        assert keeper.process.wait(20) == 0


def test_broker_that_refuses_its_files_ends_everything_with_its_exit_code(tmp_path: Path) -> None:
    with kept(tmp_path, broker="65") as keeper:
        assert keeper.process.wait(20) == 65
        assert len(keeper.pids("broker")) == 1
        assert not any(_is_alive(pid) for pid in keeper.pids("pool"))


def test_pool_whose_app_does_not_import_ends_everything(tmp_path: Path) -> None:
    with kept(tmp_path, pool="69") as keeper:
        assert keeper.process.wait(20) == 69
        assert "broker ended" in keeper.lines()


def test_second_stop_is_passed_on_to_the_pool(tmp_path: Path) -> None:
    with kept(tmp_path, pool=STUBBORN) as keeper:
        keeper.wait_pids("pool", 1)
        keeper.wait_pids("broker", 1)
        wait_until(partial(_ends_within, keeper.process, SAME_SIGNAL_S), "it ends at the second")
        assert keeper.lines()[-2:] == ["pool ended", "broker ended"]


def test_second_stop_is_said_to_hurry(tmp_path: Path) -> None:
    with kept(tmp_path, pool=STUBBORN) as keeper:
        keeper.wait_pids("pool", 1)
        keeper.process.terminate()
        wait_until(partial(_ends_within, keeper.process, SAME_SIGNAL_S), "it ends at the second")
        stopping, hurrying, *_ = keeper.said()[1:]
        assert "stopping" in stopping
        assert "hurrying" in hurrying


def test_what_is_passed_on_as_a_second_stop_is_one_to_a_pool() -> None:
    assert MOMENT_MS < SAME_SIGNAL_S * 1000 <= 500


def test_pool_is_not_started_beside_the_broker_of_somebody_else(tmp_path: Path) -> None:
    with kept(tmp_path, broker="71") as keeper:
        assert keeper.process.wait(20) == 71
        assert keeper.pids("pool") == []
        assert [line for line in keeper.said() if "the greeting" in line] == []


def test_broker_that_ends_for_good_ends_with_its_advice(tmp_path: Path) -> None:
    with kept(tmp_path, broker="71") as keeper:
        assert keeper.said() == ["stoker: the broker ended with exit code 71 (OWNED); the advice"]


def test_greeting_is_said_once_and_when_the_broker_is_ready(tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        (first,) = keeper.wait_pids("broker", 1)
        os.kill(first, signal.SIGKILL)
        keeper.wait_pids("broker", 2)
        keeper.wait_pids("pool", 1)
        keeper.process.terminate()
        assert keeper.said().count("the greeting") == 1


def test_pool_waits_for_the_word_of_the_broker_itself(tmp_path: Path) -> None:
    with kept(tmp_path, broker=SILENT) as keeper:
        keeper.wait_pids("broker", 1)
        os.kill(keeper.process.pid, signal.SIGRTMIN)
        wait_until(lambda: not _pending(keeper.process.pid) & READY_BIT, "the keeper has fetched it")
        keeper.process.terminate()
        assert "the greeting" not in keeper.said()
        assert keeper.pids("pool") == []


def test_copies_of_a_stop_within_a_moment_count_once(tmp_path: Path) -> None:
    with kept(tmp_path, pool=STUBBORN) as keeper:
        keeper.wait_pids("pool", 1)
        keeper.wait_pids("broker", 1)
        keeper.process.terminate()
        keeper.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            keeper.process.wait(SAME_SIGNAL_S)
        assert "pool ended" not in keeper.lines()


def test_broker_that_ends_before_the_pool_has_is_started_again(tmp_path: Path) -> None:
    with kept(tmp_path, pool=STUBBORN) as keeper:
        keeper.wait_pids("pool", 1)
        (first,) = keeper.wait_pids("broker", 1)
        keeper.process.terminate()
        wait_until(lambda: not _pending(keeper.process.pid) & TERM_BIT, "the keeper has fetched it")
        os.kill(first, signal.SIGTERM)
        keeper.wait_pids("broker", 2)
        wait_until(partial(_ends_within, keeper.process, SAME_SIGNAL_S), "it ends at the second")
        assert keeper.lines()[-2:] == ["pool ended", "broker ended"]


def test_hup_is_for_the_pool_alone(tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        keeper.wait_pids("pool", 1)
        keeper.process.send_signal(signal.SIGHUP)
        # This program does not handle it, and so is ended by it.
        keeper.wait_pids("pool", 2)
        assert len(keeper.pids("broker")) == 1
        keeper.process.terminate()
        assert keeper.process.wait(20) == 0


def test_programs_have_process_groups_of_their_own(tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        (pid,) = keeper.wait_pids("pool", 1)
        assert os.getpgid(pid) == pid


def test_programs_end_in_order_also_when_they_are_waiting_to_be_restarted(tmp_path: Path) -> None:
    with kept(tmp_path, pool="1") as keeper:
        keeper.wait_pids("pool", 3)
        keeper.wait_pids("broker", 1)
        keeper.process.terminate()
        assert keeper.process.wait(20) == 0
        assert keeper.lines()[-1] == "broker ended"


def test_programs_are_started_with_no_signal_blocked_or_ignored(tmp_path: Path) -> None:
    with kept(tmp_path) as keeper:
        (pid,) = keeper.wait_pids("pool", 1)
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert int(status["SigBlk"], 16) == 0
        assert not int(status["SigIgn"], 16) & (1 << signal.SIGCHLD - 1 | 1 << signal.SIGINT - 1)
