"""The seam for processes: reading `/proc` right, and signals that can hit only what was meant."""

import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import python_path
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.process import Pidfd, Stat


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, process.MARKER: "0123456789abcdef"})
    yield child
    child.kill()
    child.wait()


@given(comm=st.binary(min_size=1, max_size=15).filter(lambda name: b"\0" not in name))
def test_fields_are_found_whatever_the_command_is_called(comm: bytes) -> None:
    tail = b"S 10 11 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 98765 1000 100"
    found = process.parse_stat(b"4711 (" + comm + b") " + tail + b"\n")
    assert found == Stat(4711, "S", 10, 12, 3, 98765)


def test_own_process_is_found_with_its_parent() -> None:
    own = process.stat(os.getpid())
    assert own is not None
    assert (own.pid, own.parent, own.session, own.has_ended) == (
        os.getpid(),
        os.getppid(),
        os.getsid(0),
        False,
    )


def test_process_that_does_not_exist_is_none() -> None:
    assert process.stat(2**22 + 1) is None


@pytest.mark.parametrize(
    ("state", "threads", "ended"), [("Z", 1, True), ("Z", 2, False), ("X", 1, True), ("S", 1, False)]
)
def test_zombie_has_ended_unless_threads_of_it_run_on(state: str, threads: int, ended: bool) -> None:
    assert Stat(1, state, 1, 1, threads, 1).has_ended is ended


@pytest.mark.parametrize("pid", [0, 1, -1, -4711, pytest.param(os.getpid(), id="own"), True, 12.0, "12"])
def test_no_pidfd_for_what_must_never_be_signalled(pid: int) -> None:
    with pytest.raises(ValueError, match="no target"):
        Pidfd(pid)


def test_own_group_is_no_target() -> None:
    with pytest.raises(ValueError, match="no target"):
        Pidfd(-os.getpgid(0))


def test_pidfd_of_nobody_is_refused() -> None:
    with pytest.raises(ProcessLookupError):
        Pidfd(2**22)


def test_signal_reaches_the_process_and_its_end_shows(sleeper: subprocess.Popen[bytes]) -> None:
    target = Pidfd(sleeper.pid)
    assert not target.has_exited()
    assert target.send(signal.SIGKILL)
    assert target.has_exited(within_ms=5000)
    assert sleeper.wait() == -signal.SIGKILL
    assert not target.send(signal.SIGKILL)
    target.close()
    target.close()


REUSED = """
import os, signal, subprocess, time
from stoker.worker import process, sweep

def sleeper(pid=None):
    if pid is not None:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(pid - 1))
    return subprocess.Popen(["sleep", "600"])

first = sleeper()
known, target = process.stat(first.pid), process.Pidfd(first.pid)
first.kill()
first.wait()
# A process is known by its pid and the hundredth of a second in which it began.
time.sleep(0.05)
second = sleeper(first.pid)
assert second.pid == first.pid, (second.pid, first.pid)
assert not target.send(signal.SIGKILL)
sweep.send(known, signal.SIGKILL)
assert second.poll() is None and process.stat(second.pid) is not None
sweep.send(process.stat(second.pid), signal.SIGKILL)
assert second.wait(10) == -signal.SIGKILL
print("held")
"""
"""In a pid namespace of its own: a pid is given to another process at once."""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="needs root and unshare")
def test_process_that_got_the_pid_of_another_is_left_alone() -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED]
    ended = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "held\n"), ended.stderr


def test_stopped_process_is_seen_to_be_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    def is_stopped() -> bool:
        found = process.stat(sleeper.pid)
        return found is not None and found.is_stopped

    assert not is_stopped()
    sleeper.send_signal(signal.SIGSTOP)
    wait_until(is_stopped, "it is stopped")


def test_marker_is_read_from_the_environment(sleeper: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: process.marker_of(sleeper.pid) == "0123456789abcdef", "the program was executed")
    assert process.marker_of(os.getpid()) == ""


def test_identity_names_this_process_and_this_boot() -> None:
    boot_id, namespace, pid, ticks, nonce = process.identity("0123456789abcdef")
    own = process.stat(os.getpid())
    assert own is not None
    assert (pid, ticks, nonce) == (os.getpid(), own.start_ticks, "0123456789abcdef")
    assert len(boot_id) == 36
    assert namespace == os.stat("/proc/self/ns/pid").st_ino


def test_private_memory_is_what_was_written_and_not_more_than_the_quick_figure() -> None:
    pid = os.getpid()
    before = process.private_bytes(pid)
    block = mmap.mmap(-1, 32 << 20)
    block.write(b"x" * (32 << 20))
    assert process.private_bytes(pid) - before >= 30 << 20
    assert process.resident_bytes(pid) >= 32 << 20
    block.close()


def test_memory_and_name_of_nobody_are_nothing() -> None:
    nobody = 2**22 + 1
    assert (process.private_bytes(nobody), process.resident_bytes(nobody), process.name_of(nobody)) == (
        0,
        0,
        "",
    )


def test_open_descriptors_are_listed_without_the_one_that_lists() -> None:
    before = process.open_descriptors()
    reader, writer = os.pipe()
    assert set(process.open_descriptors()) - set(before) == {reader, writer}
    os.close(reader)
    os.close(writer)
    assert process.open_descriptors() == before


FORK_WITHOUT_EXEC = """
import os, sys, time
from stoker.worker.process import MarkerSpace
space = MarkerSpace()
space.write("fedcba9876543210")
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(60)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("length", [16, 40])
def test_marker_shows_in_a_fork_without_exec_that_left_session_and_parent(length: int) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", FORK_WITHOUT_EXEC],
        env={**os.environ, process.MARKER: "0" * length},
        stdout=subprocess.PIPE,
    )
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    run.stdout.close()
    run.wait()
    target = Pidfd(pid)
    assert process.marker_of(pid) == "fedcba9876543210"
    target.send(signal.SIGKILL)
    target.close()


@pytest.mark.slow
def test_process_whose_parent_has_ended_already_dies_as_if_it_ended_now() -> None:
    script = (
        f"from stoker.worker.process import die_with_parent; die_with_parent({os.getpid()} + 1); print('on')"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGKILL, b"", b"")


@pytest.mark.slow
def test_process_whose_parent_lives_goes_on() -> None:
    script = f"from stoker.worker.process import die_with_parent; die_with_parent({os.getpid()}); print('on')"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"on\n"
