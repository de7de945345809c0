"""Sweeping: who belongs to a worker, and that it is all gone afterwards."""

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from support.pools import is_alive
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.process import Stat
from stoker.worker.sweep import members, orphans, sweep

NONCE = "00112233aabbccdd"
ABSENT = 2**22
"""Above every pid there can be: nothing can be read of these processes, so only their Stat counts."""


def a_process(number: int, *, parent: int = 0, session: int = 0, state: str = "S") -> Stat:
    return Stat(ABSENT + number, state, ABSENT + parent, ABSENT + session, 1, 100 + number)


def numbers(found: Sequence[Stat]) -> set[int]:
    return {each.pid - ABSENT for each in found}


def test_family_is_session_and_descendants_in_any_order() -> None:
    stats = [
        a_process(9, parent=8, session=9),
        a_process(8, parent=7, session=8),
        a_process(7, parent=5, session=5),
        a_process(5, parent=1, session=5),
        a_process(3, parent=1, session=5),
        a_process(20, parent=1, session=1),
    ]
    assert numbers(members(ABSENT + 5, NONCE, stats)) == {3, 7, 8, 9}


def test_what_has_ended_is_not_listed_but_its_children_are() -> None:
    stats = [a_process(6, parent=5, session=6, state="Z"), a_process(7, parent=6, session=7)]
    assert numbers(members(ABSENT + 5, NONCE, stats)) == {7}


def test_own_process_is_never_a_member() -> None:
    own = Stat(os.getpid(), "S", ABSENT + 5, ABSENT + 5, 1, 1)
    assert members(ABSENT + 5, NONCE, [own]) == []


def test_orphans_of_a_reaped_worker_are_found_by_its_session() -> None:
    stats = [a_process(7, parent=1, session=5), a_process(8, parent=7, session=8)]
    assert numbers(orphans(ABSENT + 5, NONCE, stats)) == {7, 8}


def test_pid_that_was_given_to_somebody_else_means_nothing() -> None:
    stats = [a_process(5, session=5), a_process(6, parent=5, session=5)]
    assert orphans(ABSENT + 5, NONCE, stats) == []


def test_no_nonce_is_no_sign() -> None:
    with pytest.raises(AssertionError):
        members(ABSENT + 5, "", [a_process(1)])


TREE = """
import os, subprocess, sys, time
os.setsid()
subprocess.Popen(["sleep", "60"])
subprocess.Popen(["sleep", "60"], start_new_session=True)
subprocess.Popen(["setsid", "-f", "sleep", "61"])
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True)
print(flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_tree_is_found_while_its_root_lives_and_gone_after_the_sweep() -> None:
    root = subprocess.Popen(
        [sys.executable, "-c", TREE], env={**os.environ, process.MARKER: NONCE}, stdout=subprocess.PIPE
    )
    assert root.stdout is not None
    root.stdout.readline()
    root.stdout.close()
    # Until the `setsid -f` has gone and left its program behind.
    wait_until(lambda: len(members(root.pid, NONCE)) == 4, "four processes")
    found = members(root.pid, NONCE)
    root.kill()
    root.wait()
    assert sweep(root.pid, NONCE)
    assert [each.pid for each in found if is_alive(each.pid)] == []


@pytest.mark.slow
def test_member_that_lost_every_sign_is_killed_because_it_was_seen_before() -> None:
    stray = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True)
    known = process.stat(stray.pid)
    assert known is not None
    assert sweep(ABSENT, NONCE, [known])
    assert stray.wait() == -9


@pytest.mark.slow
def test_known_pid_that_was_reused_is_left_alone() -> None:
    other = subprocess.Popen(["sleep", "60"])
    now = process.stat(other.pid)
    assert now is not None
    assert sweep(ABSENT, NONCE, [now._replace(start_ticks=now.start_ticks - 1)])
    assert is_alive(other.pid)
    other.kill()
    other.wait()
