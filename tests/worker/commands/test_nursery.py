"""The nursery: sentinels on demand, and the end of what one leaves that was killed."""

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.forking import forked
from support.leaves import WITHOUT_LEAVES, has_leaves
from support.nursery_process import CROWDED, Line, NurseryProcess
from support.pools import is_alive
from support.programs import (
    a_mark,
    a_program,
    a_shell,
    descriptors_of,
    living,
    lowest_free_descriptor,
    zombies_below,
)
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.commands import descendants
from stoker.worker.commands.talk import Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

TREE = """
trap '' TERM
(setsid sleep $1 &)
(setsid env -i sh -c '(sleep 600 &) ; (sleep 600 & wait)' $1 $1 &)
sh -c 'kill -STOP $$; sleep 600' $1 &
sleep $1
"""
TREE_COUNT = 6

COMET = """
import os, sys, time
end_s = time.monotonic() + 20
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
"""


@pytest.fixture
def nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess() as nursery:
        yield nursery


def sentinel_of(nursery: NurseryProcess, pid: int) -> int:
    """The one that a program was started by."""
    found = process.stat(pid)
    assert found is not None
    assert found.parent in nursery.sentinels()
    return found.parent


def a_tree(line: Line) -> tuple[int, str]:
    """Pid and mark of a program that has started many."""
    mark = a_mark()
    pid = line.started(a_shell(TREE, mark))
    wait_until(lambda: len(living(mark)) >= TREE_COUNT, "all of its tree")
    return pid, mark


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def reap_all() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_eof(line: Line) -> None:
    with pytest.raises(EOFError):
        line.hear()


def test_as_many_sentinels_as_were_asked_for(nursery: NurseryProcess) -> None:
    lines = [nursery.line() for _ in range(5)]
    nursery.wait_sentinels(5)
    assert [line.run(a_shell(f"exit {at}")).status for at, line in enumerate(lines)] == [0, 1, 2, 3, 4]


def test_sentinel_has_its_own_socket_and_no_others(nursery: NurseryProcess) -> None:
    lines = [nursery.line() for _ in range(3)]
    for line in lines:
        line.run(a_program("true"))
    counts = {descriptors_of(pid) for pid in nursery.sentinels()}
    # Three streams, a socket, a pipe, and its leaf.
    assert counts == {6 + has_leaves()}


def test_its_descriptors_come_back(nursery: NurseryProcess) -> None:
    nursery.line().run(a_program("true"))
    before = descriptors_of(nursery.pid)
    for how in (signal.SIGKILL, None):
        lines = [nursery.line() for _ in range(10)]
        for line in lines:
            line.run(a_program("true"))
        # A socket for each, and its leaf.
        assert descriptors_of(nursery.pid) == before + 10 * (1 + has_leaves())
        for pid in nursery.sentinels()[1:] if how else []:
            kill(pid)
        for line in lines:
            line.close()
        wait_until(lambda: descriptors_of(nursery.pid) == before, "sockets of its sentinels are closed")
        assert zombies_below(nursery.pid) == []


def test_socket_of_a_killed_sentinel_ends_when_nothing_of_its_program_lives(nursery: NurseryProcess) -> None:
    line, other = nursery.line(), nursery.line()
    pid, mark = a_tree(line)
    other_pid = other.started(a_shell("sleep 0.5; exit 5"))
    begun_s = time.monotonic()
    kill(sentinel_of(nursery, pid))
    wait_eof(line)
    assert living(mark) == set()
    assert time.monotonic() - begun_s < 2
    assert is_alive(other_pid)
    assert other.ended().status == 5
    assert zombies_below(nursery.pid) == []


def test_socket_does_not_end_while_something_lives(nursery: NurseryProcess) -> None:
    line = nursery.line()
    pid, mark = a_tree(line)
    os.kill(nursery.pid, signal.SIGSTOP)
    kill(sentinel_of(nursery, pid))
    line.channel.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        line.hear()
    assert len(living(mark)) >= TREE_COUNT
    os.kill(nursery.pid, signal.SIGCONT)
    line.channel.socket.settimeout(10)
    wait_eof(line)
    assert living(mark) == set()


def test_what_is_never_there_when_all_are_listed_is_ended_too_when_its_sentinel_is_killed() -> None:
    mark = a_mark()
    with NurseryProcess(code=CROWDED) as nursery:
        line = nursery.line()
        # The program itself stays, so that the sentinel has no reason to look below it.
        pid = line.started(a_shell('"$1" -ISs -c "$2" "$3"; sleep 600', sys.executable, COMET, mark))
        wait_until(lambda: len(living(mark)) > 1, "its beginning")
        begun_s = time.monotonic()
        kill(sentinel_of(nursery, pid))
        wait_eof(line)
        assert living(mark) == set()
        assert time.monotonic() - begun_s < 4


def test_idle_sentinel_that_is_killed_is_no_more_and_nothing_else_happens(nursery: NurseryProcess) -> None:
    line, other = nursery.line(), nursery.line()
    line.run(a_program("true"))
    other_pid = other.started(a_shell("sleep 0.3; exit 5"))
    (idle,) = set(nursery.sentinels()) - {sentinel_of(nursery, other_pid)}
    kill(idle)
    wait_eof(line)
    assert other.ended().status == 5


def test_worker_that_is_gone_ends_all_within_two_seconds() -> None:
    with NurseryProcess() as nursery:
        marks = [a_tree(nursery.line())[1] for _ in range(3)]
        sentinels = nursery.wait_sentinels(3)
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 2
    assert nursery.process.returncode == 0
    assert [pid for pid in sentinels if is_alive(pid)] == []
    assert set[int]().union(*map(living, marks)) == set()


def test_killed_nursery_does_not_disturb_what_runs(nursery: NurseryProcess) -> None:
    line = nursery.line()
    pid = line.started(a_shell("sleep 0.3; exit 5"))
    sentinel = sentinel_of(nursery, pid)
    nursery.process.kill()
    nursery.process.wait()
    assert line.ended().status == 5
    # And what its sentinel leaves nobody else would have to end.
    _, mark = a_tree(line)
    line.close()
    wait_until(lambda: not living(mark) and not is_alive(sentinel), "the end of all", deadline_s=2)


def in_subreaper(body: Callable[[], bool]) -> int:
    def subreaper() -> bool:
        process.become_subreaper()
        return body()

    return os.waitpid(forked(subreaper), 0)[1]


def test_what_survives_nursery_and_sentinel_comes_down_to_the_next_subreaper() -> None:
    def body() -> bool:
        with NurseryProcess(code=WITHOUT_LEAVES) as nursery:
            line = nursery.line()
            pid, mark = a_tree(line)
            sentinel = sentinel_of(nursery, pid)
            for one in (nursery.pid, sentinel):
                os.kill(one, signal.SIGSTOP)
            kill(nursery.pid, sentinel)
            wait_eof(line)
            wait_until(lambda: pid in descendants.children(), "it comes down to here")
            there = living(mark)
            # Also those that carry no mark.
            descendants.kill(reap_all)
            return len(there) >= TREE_COUNT

    assert in_subreaper(body) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD])
def test_what_a_terminal_or_a_person_sends_does_not_end_it(nursery: NurseryProcess, number: int) -> None:
    nursery.line().run(a_program("true"))
    os.kill(nursery.pid, number)
    assert nursery.line().run(a_shell("exit 5")).status == 5
    os.killpg(nursery.pid, number)
    assert nursery.line().run(a_shell("exit 6")).status == 6


REFUSE_TO_FORK = f"""
import errno, os
refusals = [{errno.EAGAIN}, {errno.ENOMEM}]
fork = os.fork
def refuse():
    if refusals:
        raise OSError(refusals[0], os.strerror(refusals.pop(0)))
    return fork()
os.fork = refuse
"""
"""As a kernel does that has no process or no memory left."""


def test_fork_that_is_refused_is_told_and_the_next_one_works() -> None:
    with NurseryProcess(code=REFUSE_TO_FORK) as nursery:
        for number in (errno.EAGAIN, errno.ENOMEM):
            line = nursery.line()
            text = f"{errno.errorcode[number]}: {os.strerror(number)}: a sentinel"
            assert line.begin(a_program("true")) == Failed(number, text)
            wait_eof(line)
        assert nursery.line().run(a_shell("exit 5")).status == 5


def test_without_descriptors_it_says_so_and_works_again_with_some(nursery: NurseryProcess) -> None:
    nursery.line().run(a_program("true"))
    before = resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, (lowest_free_descriptor(nursery.pid), before[1]))
    for _ in range(3):
        line = nursery.line()
        text = "EMFILE: Too many open files: a sentinel"
        assert line.begin(a_program("true")) == Failed(errno.EMFILE, text)
        wait_eof(line)
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, before)
    assert nursery.line().run(a_shell("exit 5")).status == 5


def test_with_fewer_descriptors_than_it_has_open_nothing_hangs(nursery: NurseryProcess) -> None:
    nursery.line().run(a_program("true"))
    before = resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    wait_eof(nursery.line())
    wait_eof(nursery.line())
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, before)
    assert nursery.line().run(a_shell("exit 5")).status == 5


def test_program_may_open_as_many_as_is_usual_however_many_a_worker_may(nursery: NurseryProcess) -> None:
    line = nursery.line()
    pid = line.started(a_program("sleep", "600"))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (min(1024, hard), hard)
    assert resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_it_keeps_no_directory_of_the_workers_busy(nursery: NurseryProcess) -> None:
    nursery.line().run(a_program("true"))
    assert {os.readlink(f"/proc/{pid}/cwd") for pid in (nursery.pid, *nursery.sentinels())} == {"/"}
