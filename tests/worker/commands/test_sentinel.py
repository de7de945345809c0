"""A sentinel and real programs: what they start from, and what it says of their end."""

import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.nursery_process import Line, NurseryProcess
from support.programs import (
    ENV,
    LIBRARYS_OWN_SIGNALS,
    a_program,
    a_python,
    a_shell,
    lowest_free_descriptor,
    status_of,
)
from support.waiting import wait_until

from stoker.worker.commands.program import Program
from stoker.worker.commands.talk import Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess() as nursery:
        yield nursery


DIRTY = """
import os, signal, sys
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
os.dup2(0, 77)
os.umask(0o777)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""What a nursery may have to start from: all signals ignored and blocked, a descriptor that is inherited."""


@pytest.fixture(scope="module")
def dirty_nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess([sys.executable, "-c", DIRTY]) as nursery:
        yield nursery


@pytest.fixture
def line(nursery: NurseryProcess) -> Iterator[Line]:
    with nursery.line() as line:
        yield line


LIMITS_OR_NOT = pytest.mark.parametrize("limits", [{}, {"cpu_s": 100}], ids=["free", "limited"])
"""A program with limits is started in another way."""


def elapsed_ms(since_s: float) -> float:
    return (time.monotonic() - since_s) * 1000


def a_script(directory: Path, text: str, mode: int = 0o755) -> Path:
    path = directory / "script"
    path.write_text(text)
    path.chmod(mode)
    return path


# --- how it ended --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 3, 255])
def test_exit_status(line: Line, status: int) -> None:
    ended = line.run(a_shell(f"exit {status}"))
    assert (ended.status, ended.signal, ended.left_count, ended.is_gone) == (status, None, 0, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_death_by_a_signal(line: Line, number: int) -> None:
    ended = line.run(a_shell(f"kill -{number} $$"))
    assert (ended.status, ended.signal, ended.left_count, ended.is_gone) == (None, number, 0, True)


def test_one_sentinel_runs_one_program_after_the_other(nursery: NurseryProcess, line: Line) -> None:
    assert [line.run(a_shell(f"exit {status}")).status for status in range(20)] == list(range(20))
    assert len(nursery.sentinels()) == 1


def test_peak_memory_and_processor_time_are_those_of_the_program(line: Line) -> None:
    burn = "x = b'x' * (50 << 20)\nimport time\nwhile time.process_time() < 0.2: pass"
    ended = line.run(a_python(burn))
    assert 50 << 20 <= ended.memory_peak_bytes < 90 << 20
    assert 200 <= ended.cpu_ms < 1000
    # The kernel counts what was there before exec: some of a sentinel's.
    ended = line.run(a_program("true"))
    assert ended.memory_peak_bytes < 40 << 20
    assert ended.cpu_ms < 100


def test_peak_memory_and_processor_time_of_what_it_started_count_too(line: Line) -> None:
    burn = "x = b'x' * (50 << 20)\nimport time\nwhile time.process_time() < 0.2: pass"
    ended = line.run(a_shell('"$1" -ISs -c "while True: pass" & exit 0', sys.executable))
    assert ended.left_count == 1
    assert ended.cpu_ms > 0
    ended = line.run(a_shell('"$1" -ISs -c "$2"', sys.executable, burn))
    assert ended.memory_peak_bytes >= 50 << 20
    assert ended.cpu_ms >= 200


# --- what cannot be started ----------------------------------------------------------------------------------


MANY = {b"A%d" % at: b"x" * 1000 for at in range(1500)}

UNSTARTABLE: dict[str, tuple[Program, str, str]] = {
    "missing": (a_program("/nowhere/at all"), "ENOENT", ": /nowhere/at all"),
    "not in the path": (a_program("nowhere-at-all"), "ENOENT", ": nowhere-at-all"),
    "empty path": (a_program("true", env={b"PATH": b"/nowhere"}), "ENOENT", ": true"),
    "directory": (a_program("/tmp"), "EACCES", ": /tmp"),
    "where": (a_program("true", directory=b"/nowhere/else"), "ENOENT", ": /nowhere/else"),
    "where there is a file": (a_program("true", directory=b"/etc/passwd"), "ENOTDIR", ": /etc/passwd"),
    "one argument": (a_program("true", "x" * 200_000), "E2BIG", ": true"),
    "name": (a_program("/" + "x" * 5000), "ENAMETOOLONG", ": /xxx"),
    "arguments": (a_program("true", *["x" * 1000] * 1500, env=MANY), "E2BIG", ": true"),
}
"""What cannot be started, the name of the error, and what its text names."""


def assert_fails(line: Line, program: Program, name: str, item: str) -> None:
    begun_s = time.monotonic()
    failed = line.failed(program)
    assert elapsed_ms(begun_s) < 1000
    assert failed.errno == getattr(errno, name)
    assert failed.text.startswith(f"{name}: ")
    assert item in failed.text
    assert len(failed.text) < 400
    assert line.run(a_shell("exit 5")).status == 5


@pytest.mark.parametrize("what", UNSTARTABLE)
@LIMITS_OR_NOT
def test_what_cannot_be_started_is_named_and_the_next_can(
    line: Line, what: str, limits: dict[str, int]
) -> None:
    program, name, item = UNSTARTABLE[what]
    assert_fails(line, Program(program.argv, program.directory, program.env, limits=limits), name, item)


@pytest.mark.parametrize(
    ("text", "mode", "name", "item"),
    [
        ("exit 0", 0o644, "EACCES", ""),
        ("#!/nowhere/interpreter\n", 0o755, "ENOENT", "the interpreter of: "),
        ("\1\2", 0o755, "ENOEXEC", ""),
    ],
    ids=["no right to", "no interpreter", "no format"],
)
def test_script_that_cannot_be_started_is_named_and_the_next_can(
    line: Line, tmp_path: Path, text: str, mode: int, name: str, item: str
) -> None:
    path = a_script(tmp_path, text, mode)
    assert_fails(line, a_program(str(path)), name, f": {item}{path}")


def test_descriptors_that_were_lost_on_the_way_are_too_many_open_ones(line: Line) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    assert line.begin(a_program("true"), [null, null]) == Failed(
        errno.EMFILE, "EMFILE: Too many open files: true"
    )
    os.close(null)
    assert line.run(a_shell("exit 5")).status == 5


def test_sentinel_without_descriptors_says_so_and_works_again_with_some(
    nursery: NurseryProcess, line: Line
) -> None:
    line.run(a_program("true"))
    (sentinel,) = nursery.sentinels()
    before = resource.prlimit(sentinel, resource.RLIMIT_NOFILE)
    free = lowest_free_descriptor(sentinel)
    said = list[int]()
    for more in range(8):
        resource.prlimit(sentinel, resource.RLIMIT_NOFILE, (free + more, before[1]))
        message = line.begin(a_program("true"))
        said.append(message.errno if isinstance(message, Failed) else line.ended().status or 0)
    # With three more it needs none: what it starts takes their places.
    assert said[:3] == [errno.EMFILE] * 3
    assert said == sorted(said, reverse=True) and said[-1] == 0
    resource.prlimit(sentinel, resource.RLIMIT_NOFILE, before)
    assert line.run(a_shell("exit 5")).status == 5


def test_long_command_line_arrives_whole(line: Line) -> None:
    said = line.said_by(
        a_shell('echo "$# $1 $BIG" | wc -c', *["x"] * 50_000, env=ENV | {b"BIG": b"x" * 100_000})
    )
    assert int(said) == len("50000 x ") + 100_000 + 1


# --- what it starts from -------------------------------------------------------------------------------------


@pytest.fixture(params=["clean", "dirty"])
def any_line(request: pytest.FixtureRequest) -> Iterator[Line]:
    name = "nursery" if request.param == "clean" else "dirty_nursery"
    found: NurseryProcess = request.getfixturevalue(name)
    with found.line() as line:
        yield line


@pytest.fixture
def non_blocking() -> Iterator[list[int]]:
    """One end each of three pipes."""
    pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(3)]
    yield [pipes[0][0], pipes[1][1], pipes[2][1]]
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def loaded(line: Line, program: Program, streams: Sequence[int] | None = None) -> int:
    """Pid of a program that was started, once the kernel shows its own instead of what it came from."""
    pid = line.started(program, streams)
    wait_until(lambda: Path(f"/proc/{pid}/environ").read_bytes(), "its environment")
    return pid


@LIMITS_OR_NOT
def test_program_has_three_descriptors_and_may_wait_on_them(
    any_line: Line, limits: dict[str, int], non_blocking: list[int]
) -> None:
    pid = loaded(any_line, a_program("sleep", "600", limits=limits), non_blocking)
    # Its loader opens files too, and closes them.
    wait_until(lambda: sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"], "three descriptors")
    for fd, mine in enumerate(non_blocking):
        there = Path(f"/proc/{pid}/fdinfo/{fd}").read_text()
        flags = int(there.split("flags:")[1].split()[0], 8)
        assert flags & os.O_NONBLOCK == 0
        assert os.stat(f"/proc/{pid}/fd/{fd}").st_ino == os.fstat(mine).st_ino
    any_line.end(0)
    assert any_line.ended().is_gone


@LIMITS_OR_NOT
def test_program_has_default_signals_and_no_new_privileges(any_line: Line, limits: dict[str, int]) -> None:
    pid = loaded(any_line, a_program("sleep", "600", limits=limits))
    status = status_of(Path(f"/proc/{pid}/status").read_text())
    signals = {name: int(status[name], 16) for name in ("SigIgn", "SigBlk", "SigCgt", "SigPnd", "ShdPnd")}
    signals["SigIgn"] &= ~LIBRARYS_OWN_SIGNALS
    assert signals == dict.fromkeys(signals, 0)
    assert status["NoNewPrivs"] == "1"
    any_line.end(0)
    assert any_line.ended().is_gone


@LIMITS_OR_NOT
def test_program_has_what_was_named_and_nothing_else(
    any_line: Line, tmp_path: Path, limits: dict[str, int]
) -> None:
    env = {**ENV, b"A": b"1", b"\xff": b"\xfe", b"EMPTY": b""}
    program = a_program("sleep", "600", env=env, directory=bytes(tmp_path), umask=0o027, limits=limits)
    pid = loaded(any_line, program)
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert sorted(environ.split(b"\0")[:-1]) == sorted(b"%s=%s" % each for each in env.items())
    assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
    assert status_of(Path(f"/proc/{pid}/status").read_text())["Umask"] == "0027"
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
    any_line.end(0)
    assert any_line.ended().is_gone


def test_program_without_a_path_is_looked_up_in_the_usual_places(line: Line) -> None:
    assert line.run(a_program("true", env={})).status == 0


def test_relative_name_is_looked_up_in_the_directory(line: Line, tmp_path: Path) -> None:
    a_script(tmp_path, "#!/bin/sh\nexit 9\n")
    assert line.run(a_program("./script", directory=bytes(tmp_path))).status == 9


def test_streams_are_those_that_came_with_it(line: Line) -> None:
    pipes = [os.pipe() for _ in range(3)]
    os.write(pipes[0][1], b"in\n")
    line.started(a_shell("read x; echo out $x; echo err $x >&2"), [pipes[0][0], pipes[1][1], pipes[2][1]])
    assert line.ended().status == 0
    assert (os.read(pipes[1][0], 99), os.read(pipes[2][0], 99)) == (b"out in\n", b"err in\n")
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def test_pipe_ends_with_the_program_for_nobody_else_has_it(line: Line) -> None:
    assert line.said_by(a_shell("echo all")) == "all\n"


# --- limits --------------------------------------------------------------------------------------------------

KERNELS_NAMES = {
    "memory_bytes": "Max address space",
    "cpu_s": "Max cpu time",
    "files": "Max open files",
    "file_bytes": "Max file size",
    "processes": "Max processes",
}


@pytest.mark.parametrize("name", KERNELS_NAMES)
def test_limit_is_what_the_program_is_held_to(line: Line, name: str) -> None:
    value = {"memory_bytes": 1 << 30, "files": 33}.get(name, 1234)
    pid = line.started(a_program("sleep", "600", limits={name: value}))
    before = Path("/proc/self/limits").read_text().splitlines()
    there = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (held,) = [row for row in there if row.startswith(KERNELS_NAMES[name])]
    # XCPU first, KILL a second later for one that catches it.
    hard = value + 1 if name == "cpu_s" else value
    assert held.removeprefix(KERNELS_NAMES[name]).split()[:2] == [str(value), str(hard)]
    others = [row for row in there if row != held and not row.startswith("Max open files")]
    assert set(others) <= set(before)
    line.end(0)
    assert line.ended().is_gone


@pytest.mark.parametrize(
    ("trap", "number"), [("trap - XCPU", signal.SIGXCPU), ("trap '' XCPU", signal.SIGKILL)]
)
def test_limit_of_processor_time_ends_it(line: Line, trap: str, number: int) -> None:
    ended = line.run(a_shell(f"{trap}; while :; do :; done", limits={"cpu_s": 1}))
    assert (ended.status, ended.signal) == (None, number)
    # The limit is counted in ticks, this in nanoseconds; on a busy host they differ.
    assert 400 <= ended.cpu_ms < 3000


def test_limit_of_file_size_ends_it(line: Line, tmp_path: Path) -> None:
    program = a_program(
        "dd", "if=/dev/zero", f"of={tmp_path / 'big'}", "bs=1000", "count=9", limits={"file_bytes": 2500}
    )
    assert line.run(program).signal == signal.SIGXFSZ
    assert (tmp_path / "big").stat().st_size == 2500


def test_limit_of_memory_is_an_error_in_it(line: Line) -> None:
    hungry = "try: bytearray(1 << 30)\nexcept MemoryError: raise SystemExit(9)"
    assert line.run(a_python(hungry, limits={"memory_bytes": 300 << 20})).status == 9


@pytest.mark.parametrize("limits", [{"memory_bytes": 1}, {"files": 1}, dict.fromkeys(KERNELS_NAMES, 1)])
def test_limits_under_which_nothing_runs_leave_the_sentinel_alone(line: Line, limits: dict[str, int]) -> None:
    message = line.begin(a_python("pass", limits=limits))
    assert isinstance(message, Failed) or line.ended().status != 0
    assert line.run(a_shell("exit 5")).status == 5


def test_limit_above_what_the_nursery_has_is_what_it_has(line: Line) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pid = line.started(a_program("sleep", "600", limits={"files": hard + 1}))
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)
    line.end(0)
    assert line.ended().is_gone


def test_program_may_be_made_the_kernels_choice_when_memory_is_short(line: Line) -> None:
    pid = line.started(a_program("sleep", "600", oom_score_adj=777))
    assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "777\n"
    line.end(0)
    assert line.ended().is_gone
