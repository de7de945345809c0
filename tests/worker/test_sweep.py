"""Sweeping: who belongs to a worker, and that it is all gone afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.pools import is_alive
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.process import Stat
from stoker.worker.sweep import members, orphans, strays, sweep, sweep_strays

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


# --- what the death of all of stoker left ------------------------------------------------------------

BRANCH = """
import os, subprocess, sys
name, socket, *others = sys.argv[1:]
with open("/proc/self/comm", "w") as file:
    file.write(name)
environ = {"STOKER_WORKER": "00112233aabbccdd", "STOKER_SOCKET": socket}
children = [
    subprocess.Popen(["sleep", "60"], env=environ, start_new_session=True),
    subprocess.Popen(["sleep", "60"], env={}, start_new_session=True),
    subprocess.Popen(["/bin/sh", "-c", "env -i sleep 60 & echo $!; wait"], env=environ, stdout=subprocess.PIPE),
]
print(*[child.pid for child in children], int(children[2].stdout.readline()), flush=True)
sys.stdin.read()
"""
"""A process of some name that has started: one that is marked, one that is not, one that is and started one that is not."""


@contextmanager
def branch(name: str, socket: str) -> Generator[tuple[list[int], subprocess.Popen[bytes]]]:
    """Pids of the four below such a process, and itself. All are gone afterwards."""
    root = subprocess.Popen(
        [sys.executable, "-c", BRANCH, name, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert root.stdin is not None and root.stdout is not None
    pids = [int(pid) for pid in root.stdout.readline().split()]
    try:
        yield pids, root
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        root.kill()
        root.wait()
        root.stdin.close()
        root.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stoker-pool", "stoker-zygote", "stoker-worker"])
def test_nothing_is_a_stray_below_somebody_who_looks_after_it(tmp_path: Path, name: str) -> None:
    with branch(name, str(tmp_path)) as (pids, root):
        assert list(strays(str(tmp_path))) == []
        assert sweep_strays(str(tmp_path)) == 0
        assert [pid for pid in pids if not is_alive(pid)] == []
        root.kill()
        root.wait()
        # One was never marked, and nobody above it is left.
        assert {each.pid for each in strays(str(tmp_path))} == {pids[0], *pids[2:]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sleep", "stoker-sentinel", "stoker-nursery"])
def test_strays_are_swept_and_those_of_another_broker_are_not(tmp_path: Path, name: str) -> None:
    with branch(name, str(tmp_path / "s")) as (pids, root), branch(name, str(tmp_path / "t")) as (others, _):
        assert sweep_strays(str(tmp_path / "s")) == 3
        wait_until(
            lambda: [pid for pid in pids if is_alive(pid)] == [pids[1]], "all that were marked are dead"
        )
        assert [pid for pid in others if not is_alive(pid)] == []
        assert is_alive(root.pid)


@pytest.mark.slow
def test_pool_that_was_started_by_a_job_is_no_stray_of_its_own(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys; from stoker.worker.sweep import sweep_strays; "
        "subprocess.run([sys.executable, *sys.argv[1:]]) if sys.argv[1:] else print(sweep_strays(sys.stdin.read()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, "-c", code],
        input=str(tmp_path).encode(),
        env={**os.environ, process.MARKER: NONCE, process.SOCKET: str(tmp_path)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=30,
    )
    assert ran.stdout == b"0\n"
