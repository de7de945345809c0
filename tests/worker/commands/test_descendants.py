"""Who is below a process, and the end of all of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from support.forking import forked
from support.programs import a_mark, living
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.commands import descendants
from stoker.worker.process import Stat

ABSENT = 2**22
"""Above every pid there can be."""

COMET = """
import os, sys, time
end_s = time.monotonic() + 10
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
"""


def a_process(number: int, *, parent: int, state: str = "S", threads: int = 1) -> Stat:
    return Stat(ABSENT + number, state, ABSENT + parent, 1, threads, 100 + number)


def numbers(found: Sequence[Stat]) -> list[int]:
    return [each.pid - ABSENT for each in found]


def test_parents_come_before_their_children_whatever_their_numbers() -> None:
    stats = [
        a_process(number, parent=parent)
        for number, parent in ((2, 9), (9, 5), (3, 2), (4, 1), (8, 5), (5, 1))
    ]
    assert numbers(descendants.below(ABSENT + 5, stats)) == [9, 8, 2, 3]


def test_one_that_has_ended_is_left_out_and_its_children_are_not() -> None:
    stats = [a_process(6, parent=5, state="Z"), a_process(7, parent=6)]
    assert numbers(descendants.below(ABSENT + 5, stats)) == [7]


def test_one_whose_threads_outlive_its_leader_has_not_ended() -> None:
    stats = [a_process(6, parent=5, state="Z", threads=2)]
    assert numbers(descendants.below(ABSENT + 5, stats)) == [6]


def test_some_are_left_out_with_all_below_them() -> None:
    stats = [a_process(number, parent=parent) for number, parent in ((6, 5), (7, 6), (8, 7), (9, 5), (3, 9))]
    assert numbers(descendants.below(ABSENT + 5, stats, [ABSENT + 6])) == [9, 3]


def test_circle_of_pids_that_were_reused_between_two_looks_ends() -> None:
    stats = [a_process(6, parent=7), a_process(7, parent=6), a_process(8, parent=5)]
    assert numbers(descendants.below(ABSENT + 5, stats)) == [8]


def in_subreaper(body: Callable[[], bool]) -> int:
    """Exit status of a process that orphans come down to; 0 if `body` was true."""

    def subreaper() -> bool:
        process.become_subreaper()
        return body()

    return os.waitpid(forked(subreaper), 0)[1]


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def start(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, start_new_session=True)


@pytest.mark.slow
def test_children_are_own_ones_ended_or_not_and_no_others() -> None:
    def body() -> bool:
        ended, lives = start("true"), start("sh", "-c", "sleep 600 & wait")
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        found = descendants.children()
        descendants.kill(reap)
        return found == {ended.pid, lives.pid}

    assert in_subreaper(body) == 0


@pytest.mark.slow
def test_kill_leaves_nobody_and_says_whom_it_killed() -> None:
    mark = a_mark()

    def body() -> bool:
        start("sh", "-c", f"sleep {mark} & (setsid sleep {mark} &); wait")
        wait_until(lambda: len(living(mark)) == 3, "three processes")
        killed = descendants.kill(reap)
        while descendants.children():
            killed |= descendants.kill(reap)
        return len(killed) >= 3 and not living(mark)

    assert in_subreaper(body) == 0


@pytest.mark.slow
def test_kill_spares_some_with_all_below_them() -> None:
    mark = a_mark()

    def body() -> bool:
        spared = start("sh", "-c", f"sleep {mark} & wait")
        start("sleep", mark)
        wait_until(lambda: len(living(mark)) == 3, "three processes")
        killed = descendants.kill(reap, {spared.pid})
        wait_until(lambda: len(living(mark)) == 2, "those that are spared")
        while descendants.children():
            descendants.kill(reap)
        return len(killed) == 1

    assert in_subreaper(body) == 0


@pytest.mark.slow
def test_what_ends_and_goes_on_in_its_child_is_killed() -> None:
    mark = a_mark()

    def body() -> bool:
        start(sys.executable, "-ISs", "-c", COMET, mark)
        wait_until(lambda: len(descendants.children()) > 1, "one of its next lives")
        wait_until(lambda: not (descendants.kill(reap) or descendants.children()), "its end", deadline_s=5)
        return not living(mark)

    assert in_subreaper(body) == 0


@pytest.mark.slow
def test_stopped_process_hears_that_it_shall_end() -> None:
    child = subprocess.Popen(["sh", "-c", "trap 'exit 7' TERM; kill -STOP $$; sleep 600"])

    def stopped() -> Stat | None:
        found = process.stat(child.pid)
        return found if found is not None and found.is_stopped else None

    try:
        found = wait_until(stopped, "a stopped process")
        assert found is not None
        descendants.end(found)
        assert child.wait(10) == 7
    finally:
        child.kill()
        child.wait()


def test_end_of_another_process_with_its_pid_is_not_asked_for() -> None:
    child = subprocess.Popen(["sleep", "600"])
    now = process.stat(child.pid)
    assert now is not None
    descendants.end(now._replace(start_ticks=now.start_ticks - 1))
    child.send_signal(signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
