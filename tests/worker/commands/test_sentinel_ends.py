"""A sentinel and the end of real programs: by themselves, by request, and that nothing is left of them."""

import os
import platform
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.leaves import WITHOUT_LEAVES
from support.nursery_process import CROWDED, Line, NurseryProcess
from support.other_user import OTHER_UID
from support.pools import is_alive
from support.programs import a_mark, a_program, a_python, a_shell, descriptors_of, living, zombies_below
from support.waiting import wait_until

from stoker.worker.commands.sentinel import LINGER_MS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess() as nursery:
        yield nursery


@pytest.fixture
def line(nursery: NurseryProcess) -> Iterator[Line]:
    with nursery.line() as line:
        yield line


def elapsed_ms(since_s: float) -> float:
    return (time.monotonic() - since_s) * 1000


# --- nothing survives ----------------------------------------------------------------------------------------

BOMB = """
import os, sys, time
leader, end_s = os.getpid(), time.monotonic() + 10
for _ in range(7):
    os.fork()
if os.getpid() == leader:
    os._exit(4)
while time.monotonic() < end_s:
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
"""127 processes that fork and fork, each with one child at a time. On a busy machine KILL comes before the last of them."""

COMET = """
import os, sys, time
end_s = time.monotonic() + 10
if os.fork():
    os._exit(4)
while time.monotonic() < end_s:
    if os.fork():
        os._exit(0)
    if sys.argv[2] == "hides":
        os.setsid()
"""

SUBREAPER = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork():
    os._exit(4)
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        break
time.sleep(600)
"""

SIBLING = """
import ctypes, os, sys, time
CLONE_PARENT, SIGCHLD = 0x8000, 17
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
if ctypes.CDLL(None).syscall(number, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0):
    os._exit(4)
time.sleep(600)
"""

HEADLESS = """
import ctypes, os, sys, threading, time
if os.fork():
    os._exit(4)
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""

LEFT = {
    "in the background": (a_shell, "sleep $1 & exit 4", 1),
    "in a session of its own": (a_shell, "setsid sleep $1 & exit 4", 1),
    "daemons": (a_shell, "(setsid env -i sh -c '(sleep 600 &) ; (sleep 600 & :)' $1 $1 &) ; exit 4", 2),
    "deaf to TERM": (a_shell, "trap '' TERM HUP; sleep $1 & (sleep $1; :) & exit 4", 3),
    "many that fork": (a_python, BOMB, 32),
    "one that goes on in its child": (a_python, COMET, 1),
    "stopped": (a_shell, "sh -c 'kill -STOP $$; sleep 600' $1 & exit 4", 1),
    "below another subreaper": (a_python, SUBREAPER, 4),
    "a sibling": (a_python, SIBLING, 1),
    "threads without their leader": (a_python, HEADLESS, 1),
}
"""How the program leaves something behind when it ends with status 4, and how many processes at least."""


@pytest.mark.parametrize("how", LEFT)
def test_nothing_that_a_program_leaves_behind_survives_it(nursery: NurseryProcess, how: str) -> None:
    if how == "a sibling" and platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the number of the system call is not known for this machine")
    make, text, count = LEFT[how]
    mark = a_mark()
    with nursery.line() as line:
        line.run(a_program("true"))
        (sentinel,) = nursery.sentinels()
        before = descriptors_of(sentinel), descriptors_of(nursery.pid)
        begun_s = time.monotonic()
        ended = line.run(make(text, mark, "stays"))
        assert living(mark) == set()
        assert elapsed_ms(begun_s) < 5000
        assert (ended.status, ended.is_gone) == (4, True)
        assert ended.left_count >= count
        assert zombies_below(nursery.pid) == []
        assert (descriptors_of(sentinel), descriptors_of(nursery.pid)) == before
    nursery.wait_sentinels(0)


def test_five_hundred_children_do_not_survive_their_program(line: Line) -> None:
    mark = a_mark()
    begun_s = time.monotonic()
    ended = line.run(a_shell("i=0; while [ $i -lt 500 ]; do sleep $1 & i=$((i + 1)); done; exit 4", mark))
    assert (ended.status, ended.left_count, ended.is_gone, living(mark)) == (4, 500, True, set())
    assert elapsed_ms(begun_s) < 20_000


@pytest.mark.parametrize("how", ["stays", "hides"])
def test_what_is_never_there_when_all_are_listed_does_not_survive(how: str) -> None:
    mark = a_mark()
    with NurseryProcess(code=CROWDED) as nursery:
        begun_s = time.monotonic()
        ended = nursery.line().run(a_python(COMET, mark, how))
        assert (ended.status, ended.is_gone, living(mark)) == (4, True, set())
        assert elapsed_ms(begun_s) < 5000


def test_what_ends_by_itself_soon_after_the_program_is_let_end(line: Line, tmp_path: Path) -> None:
    told = tmp_path / "told"
    ended = line.run(a_shell("(sleep 0.05; echo all > $1) & exit 0", str(told)))
    assert (ended.status, ended.left_count) == (0, 0)
    assert told.read_text() == "all\n"


def test_what_stays_is_given_some_time_and_no_more(line: Line) -> None:
    begun_s = time.monotonic()
    assert line.run(a_shell("sleep 600 & exit 0")).left_count == 1
    assert LINGER_MS <= elapsed_ms(begun_s) < 10 * LINGER_MS


# --- asked to end --------------------------------------------------------------------------------------------

TIDY = """
import os, signal, sys, time
def tidy(number, frame):
    time.sleep(0.2)
    open(sys.argv[1], "a").write(f"{number}\\n")
    if sys.argv[2] == "ends":
        sys.exit(7)
signal.signal(signal.SIGTERM, tidy)
open(sys.argv[1], "w").close()
while True:
    time.sleep(600)
"""


def begun(path: Path) -> None:
    wait_until(path.exists, "its beginning")


def test_program_that_tidies_up_ends_by_itself(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    line.started(a_python(TIDY, str(path), "ends"))
    begun(path)
    begun_s = time.monotonic()
    line.end(10_000)
    ended = line.ended()
    assert elapsed_ms(begun_s) < 5000
    assert (ended.status, ended.signal, ended.left_count) == (7, None, 0)
    assert path.read_text() == "15\n"


def test_program_that_does_not_hear_is_killed_after_the_grace(line: Line, tmp_path: Path) -> None:
    path, mark = tmp_path / "told", a_mark()
    line.started(a_shell("trap '' TERM; sleep $2 & : > $1; sleep $2; exit 1", str(path), mark))
    begun(path)
    begun_s = time.monotonic()
    line.end(400)
    ended = line.ended()
    assert 400 <= elapsed_ms(begun_s) < 2000
    assert (ended.status, ended.signal, ended.left_count) == (None, signal.SIGKILL, 2)
    assert living(mark) == set()


def test_without_a_grace_it_is_killed_at_once(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    line.started(a_shell("trap '' TERM; : > $1; while :; do sleep 1; done", str(path)))
    begun(path)
    begun_s = time.monotonic()
    line.end(0)
    assert line.ended().signal == signal.SIGKILL
    assert elapsed_ms(begun_s) < 1000


def test_all_of_its_tree_is_asked_to_end(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    text = 'trap : TERM; setsid "$1" -ISs -c "$2" "$3" ends & wait; wait $!; exit $?'
    line.started(a_shell(text, sys.executable, TIDY, str(path)))
    begun(path)
    line.end(10_000)
    assert line.ended().status == 7
    assert path.read_text() == "15\n"


def test_stopped_program_hears_that_it_shall_end(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    pid = line.started(a_python(TIDY, str(path), "ends"))
    begun(path)
    os.kill(pid, signal.SIGSTOP)
    line.end(10_000)
    assert line.ended().status == 7


def test_it_is_asked_once_however_often_its_end_is_wanted(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    line.started(a_python(TIDY, str(path), "stays"))
    begun(path)
    for _ in range(3):
        line.end(1000)
    assert line.ended().signal == signal.SIGKILL
    assert path.read_text() == "15\n"


def test_shorter_grace_counts_and_a_longer_one_does_not(line: Line, tmp_path: Path) -> None:
    path = tmp_path / "told"
    line.started(a_python(TIDY, str(path), "stays"))
    begun(path)
    begun_s = time.monotonic()
    for grace_ms in (60_000, 500, 30_000):
        line.end(grace_ms)
    assert line.ended().signal == signal.SIGKILL
    assert 500 <= elapsed_ms(begun_s) < 5000


def test_end_that_comes_late_is_not_for_the_next_program(line: Line) -> None:
    line.run(a_program("true"))
    line.end(0)
    line.end(0)
    assert line.run(a_shell("sleep 0.3; exit 5")).status == 5


def test_grace_is_the_programs_and_not_for_what_it_leaves_behind(line: Line, tmp_path: Path) -> None:
    path, mark = tmp_path / "told", a_mark()
    deaf = "(trap '' TERM; sleep $2; :) & trap 'exit 5' TERM; : > $1; while :; do sleep 0.05; done"
    line.started(a_shell(deaf, str(path), mark))
    begun(path)
    begun_s = time.monotonic()
    line.end(60_000)
    ended = line.ended()
    assert elapsed_ms(begun_s) < 5000
    assert (ended.status, living(mark)) == (5, set())


IMPATIENT = f"from stoker.worker import sweep; sweep.SWEEP_MS = 300\n{WITHOUT_LEAVES}"


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_what_cannot_be_killed_is_told_of_and_its_sentinel_ends() -> None:
    mark = a_mark()
    not_allowed = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
    with NurseryProcess(not_allowed, code=IMPATIENT) as nursery:
        line, other = nursery.line(), nursery.line()
        somebody = f"setpriv --reuid={OTHER_UID} --clear-groups sleep $1 & exit 3"
        ended = line.run(a_shell(somebody, mark))
        assert (ended.status, ended.left_count, ended.is_gone) == (3, 1, False)
        with pytest.raises(EOFError):
            line.hear()
        assert len(living(mark)) == 1
        assert other.run(a_shell("exit 5")).status == 5
        for pid in living(mark):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not zombies_below(nursery.pid), "nobody left to be reaped")


# --- the worker is gone --------------------------------------------------------------------------------------


def test_worker_that_is_gone_ends_program_and_sentinel(nursery: NurseryProcess, tmp_path: Path) -> None:
    path, mark = tmp_path / "told", a_mark()
    with nursery.line() as line:
        line.started(a_shell("trap '' TERM; (setsid sleep $2 &); sleep $2 & : > $1; wait", str(path), mark))
        begun(path)
    wait_until(lambda: not living(mark), "its end", deadline_s=2)
    nursery.wait_sentinels(0)
    assert zombies_below(nursery.pid) == []


def test_worker_that_went_without_listening(nursery: NurseryProcess) -> None:
    line = nursery.line()
    line.started(a_shell("sleep 0.1"))
    wait_until(lambda: select.select([line.channel.socket], [], [], 0)[0], "its answer")
    line.close()
    nursery.wait_sentinels(0)
    assert is_alive(nursery.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD])
def test_what_a_terminal_or_a_person_sends_does_not_end_a_sentinel(
    nursery: NurseryProcess, line: Line, number: int
) -> None:
    line.run(a_program("true"))
    (sentinel,) = nursery.sentinels()
    line.started(a_shell("sleep 0.2; exit 5"))
    for _ in range(3):
        os.kill(sentinel, number)
    assert line.ended().status == 5
    os.kill(sentinel, number)
    assert line.run(a_shell("exit 6")).status == 6


def test_kernel_ends_a_program_with_limits_together_with_its_sentinel() -> None:
    with NurseryProcess() as nursery:
        bound, free = nursery.line(), nursery.line()
        bound_pid = bound.started(a_program("sleep", "600", limits={"cpu_s": 100}))
        free_pid = free.started(a_program("sleep", "600"))
        os.kill(nursery.pid, signal.SIGSTOP)
        for sentinel in nursery.sentinels():
            os.kill(sentinel, signal.SIGKILL)
        wait_until(lambda: not is_alive(bound_pid), "its end by the kernel", deadline_s=2)
        assert is_alive(free_pid)
        os.kill(nursery.pid, signal.SIGCONT)
        wait_until(lambda: not is_alive(free_pid), "its end by the nursery", deadline_s=2)
