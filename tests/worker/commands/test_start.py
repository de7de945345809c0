"""Where a program is looked for, and what stays of its start in the sentinel. What it starts from is in `test_sentinel`."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nursery_process import Line, NurseryProcess
from support.programs import a_mark, a_program, a_shell, living

from stoker.worker.commands.program import Program
from stoker.worker.commands.talk import Ended, Failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

WITHOUT_SETSID = """
import os
def posix_spawn(*_, setsid=False, **__):
    assert setsid
    raise NotImplementedError("The POSIX_SPAWN_SETSID option is not supported")
os.posix_spawn = posix_spawn
"""
"""Code for a nursery of a Python that was built where the C library knew no better."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def old_nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess(code=WITHOUT_SETSID) as nursery:
        yield nursery


@pytest.fixture
def line(nursery: NurseryProcess) -> Iterator[Line]:
    with nursery.line() as line:
        yield line


@pytest.fixture(params=["spawned", "forked", "spawned by an old one"])
def start_of(request: pytest.FixtureRequest) -> Iterator[tuple[Line, dict[str, int]]]:
    """A sentinel, and limits with which it starts a program in the way that is tested."""
    name = "old_nursery" if request.param == "spawned by an old one" else "nursery"
    found: NurseryProcess = request.getfixturevalue(name)
    with found.line() as line:
        yield line, {"cpu_s": 100} if request.param == "forked" else {}


# --- where it is looked for ----------------------------------------------------------------------------------


def programs_in(directory: Path, **modes: int) -> None:
    """One called `it` in each of the places named, with that mode; it ends with the number of the place."""
    for number, (place, mode) in enumerate(modes.items(), start=1):
        (directory / place).mkdir()
        (directory / place / "it").write_text(f"#!/bin/sh\nexit {number}\n")
        (directory / place / "it").chmod(mode)


def an_it(path: str, directory: Path, limits: dict[str, int]) -> Program:
    return a_program("it", directory=bytes(directory), env={b"PATH": os.fsencode(path)}, limits=limits)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("{0}/a:{0}/b", 1),
        ("{0}/nowhere:{0}/b:{0}/a", 2),
        ("{0}/c/it:{0}/c:{0}/b", 2),
        ("b:{0}/a", 2),
        (":{0}/a", 1),
        ("{0}/a:", 1),
        ("{0}/a/:{0}/b", 1),
    ],
    ids=["first", "second", "after one without the right", "relative", "here first", "here last", "slash"],
)
def test_first_of_its_name_that_can_be_run_is(
    start_of: tuple[Line, dict[str, int]], tmp_path: Path, path: str, status: int
) -> None:
    line, limits = start_of
    programs_in(tmp_path, a=0o755, b=0o755, c=0o644)
    assert line.run(an_it(path.format(tmp_path), tmp_path, limits)).status == status


def test_empty_name_in_the_path_is_the_directory_of_the_program(
    start_of: tuple[Line, dict[str, int]], tmp_path: Path
) -> None:
    line, limits = start_of
    programs_in(tmp_path, a=0o755)
    assert line.run(an_it("/nowhere:", tmp_path / "a", limits)).status == 1


def hopeless_in(directory: Path) -> None:
    """`it` without the right to run it, in no format, and with an interpreter that is missing."""
    programs_in(directory, unfit=0o644, strange=0o755, lost=0o755)
    (directory / "strange" / "it").write_text("\1\2")
    (directory / "lost" / "it").write_text("#!/nowhere/interpreter\n")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("{0}/unfit:/nowhere", errno.EACCES),
        ("/nowhere:{0}/unfit", errno.EACCES),
        ("{0}/unfit/it:{0}/unfit", errno.EACCES),
        ("{0}/unfit:{0}/strange:{0}/lost", errno.EACCES),
        ("{0}/lost:{0}/strange:{0}/unfit", errno.ENOEXEC),
        ("/nowhere:{0}/lost", errno.ENOENT),
        ("/nowhere:/etc/passwd", errno.ENOTDIR),
        ("/etc/passwd:/nowhere", errno.ENOENT),
    ],
)
def test_why_it_cannot_be_run_is_the_first_that_was_there_and_could_not(
    start_of: tuple[Line, dict[str, int]], tmp_path: Path, path: str, error: int
) -> None:
    line, limits = start_of
    hopeless_in(tmp_path)
    failed = line.failed(an_it(path.format(tmp_path), tmp_path, limits))
    assert failed == Failed(error, f"{errno.errorcode[error]}: {os.strerror(error)}: it")


# --- what stays of it ----------------------------------------------------------------------------------------


def test_sentinel_is_where_it_was(nursery: NurseryProcess, line: Line, tmp_path: Path) -> None:
    line.started(a_program("sleep", "600", directory=bytes(tmp_path)))
    (sentinel,) = nursery.sentinels()
    assert os.readlink(f"/proc/{sentinel}/cwd") == "/"
    line.end(0)
    assert line.ended().is_gone
    line.failed(a_program("nowhere-at-all", directory=bytes(tmp_path)))
    assert os.readlink(f"/proc/{sentinel}/cwd") == "/"


def test_program_has_its_own_umask_and_not_that_of_the_one_before_it(line: Line) -> None:
    said = [line.said_by(a_shell("umask", umask=umask)).strip() for umask in (0o077, 0o022, 0)]
    assert said == ["0077", "0022", "0000"]


def test_streams_that_lie_where_others_are_to_be_arrive_all_the_same() -> None:
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    with NurseryProcess(closed) as nursery, nursery.line(), nursery.line() as line:
        pipes = [os.pipe() for _ in range(3)]
        os.write(pipes[0][1], b"in\n")
        ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
        line.started(a_shell("read x; echo out $x; echo err $x >&2"), ends)
        assert line.ended().status == 0
        assert (os.read(pipes[1][0], 99), os.read(pipes[2][0], 99)) == (b"out in\n", b"err in\n")
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)


# --- when it is told -----------------------------------------------------------------------------------------


PATIENT = "from stoker.worker.commands import sentinel; sentinel.BRIEF_MS = 60_000"


@pytest.fixture(scope="module")
def patient_nursery() -> Iterator[NurseryProcess]:
    with NurseryProcess(code=PATIENT) as nursery:
        yield nursery


def test_program_that_is_over_in_a_moment_is_told_of_once(patient_nursery: NurseryProcess) -> None:
    # What is sent at once is read at once and nothing else is.
    with patient_nursery.line(socket.SOCK_SEQPACKET) as line:
        line.started(a_shell("sleep 0.05; exit 3"))
        assert isinstance(line.channel.next(), Ended)


def test_program_that_goes_on_is_told_of_though_others_of_it_end_all_the_time(
    patient_nursery: NurseryProcess,
) -> None:
    with patient_nursery.line() as line:
        mark = a_mark()
        pid = line.started(a_shell("while :; do (: &) ; done", mark))
        assert pid in living(mark)
        line.end(0)
        assert line.ended().is_gone
