"""`run`: what a program is given, and what becomes of how it ends. What ends it: `test_run_endings`."""

import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.argvs import IGNORES_TERM, python, shell
from support.leftovers import nothing_left
from support.programs import a_mark
from support.taken import Counted, Taken

from stoker import CurrentJob
from stoker.worker import process
from stoker.worker.commands.program import Program, ProgramError
from stoker.worker.commands.run import (
    SHOWN_BYTES,
    CommandError,
    CommandTimeoutError,
    environment,
    of_this_process,
    run,
)
from stoker.worker.commands.sentinels import StartError
from stoker.worker.commands.sinks import DISCARD, lines
from stoker.worker.commands.stream import TAIL_BYTES
from stoker.worker.commands.talk import Channel, Ended, Started
from stoker.worker.context import set_task_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]

TEN_MB = bytes(range(250)) * 40_000

JOB = CurrentJob("job-1", 2, (3, 7), "send", "mail", {}, 0.0)


async def failure_of(argv: list[str], **options: Any) -> CommandError:
    with pytest.raises(CommandError) as raised:
        async with run(argv, **options):
            pass
    return raised.value


async def text_of(argv: list[str], **options: Any) -> str:
    taken = Taken()
    async with run(argv, stdout=taken.take, **options):
        pass
    return taken.text.decode()


# --- what it reads ---------------------------------------------------------------------------------------


async def test_ten_megabytes_into_cat_come_back_whole() -> None:
    taken = Taken()
    with nothing_left():
        async with run(["cat"], stdin=TEN_MB, stdout=taken.take):
            pass
    assert taken.text == TEN_MB


async def test_program_need_not_read_what_it_is_given() -> None:
    with nothing_left(), anyio.fail_after(5):
        async with run(["true"], stdin=TEN_MB) as child:
            assert (await child.wait()).status == 0


async def test_program_that_reads_nothing_for_long_is_not_in_anybodys_way() -> None:
    mark = a_mark()
    with nothing_left(mark), anyio.fail_after(5):
        async with run(["sleep", mark], stdin=TEN_MB, ok=None) as child:
            assert await text_of(["echo", "beside it"]) == "beside it\n"
            await child.end()


async def test_without_input_there_is_an_empty_one() -> None:
    with anyio.fail_after(5):
        assert await text_of(["cat"]) == ""
        assert await text_of(shell("cat <&0 && echo readable")) == "readable\n"


async def test_no_bytes_are_an_empty_input() -> None:
    with anyio.fail_after(5):
        assert await text_of(["cat"], stdin=b"") == ""


async def test_input_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"from a file")
    with nothing_left():
        assert await text_of(["cat"], stdin=path) == "from a file"


async def test_input_file_that_is_missing(tmp_path: Path) -> None:
    with nothing_left(), pytest.raises(FileNotFoundError, match="no-such-file"):
        async with run(["cat"], stdin=tmp_path / "no-such-file"):
            pass


async def test_input_that_waits_for_its_writer_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with nothing_left(), anyio.fail_after(5):
        assert await text_of(["cat"], stdin=tmp_path / "fifo") == ""


@pytest.mark.parametrize("stdin", ["text", 5, ["list"]], ids=repr)
async def test_input_is_bytes_or_a_path(stdin: Any) -> None:
    with nothing_left(), pytest.raises(TypeError):
        async with run(["cat"], stdin=stdin):
            pass


async def test_input_may_be_any_buffer() -> None:
    numbers = memoryview(bytes(1_000_000) + b"last").cast("i")
    assert await text_of(["cat"], stdin=numbers) == "\0" * 1_000_000 + "last"


# --- how it ends -----------------------------------------------------------------------------------------


async def test_success_says_how() -> None:
    async with run(["true"]) as child:
        assert child.pid > 0
    assert child.ended is not None
    assert (child.ended.status, child.ended.signal, child.ended.is_gone) == (0, None, True)


@pytest.mark.parametrize("status", [1, 3, 255])
async def test_exit_status_is_an_error(status: int) -> None:
    error = await failure_of(shell("exit $1", str(status)))
    assert (error.status, error.signal, str(error)) == (status, None, f"exit status {status}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_signal_is_an_error(number: signal.Signals) -> None:
    error = await failure_of(shell(f"kill -{number:d} $$"))
    assert (error.status, error.signal) == (None, number)
    assert str(error) == f"signal {number:d} ({signal.strsignal(number)})"


async def test_last_words_are_in_the_error() -> None:
    error = await failure_of(shell("echo cannot open in.png >&2; exit 1"))
    assert str(error) == "exit status 1: cannot open in.png"
    assert error.stderr == b"cannot open in.png\n"


async def test_last_words_are_bounded() -> None:
    error = await failure_of(shell("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 1"))
    assert str(error) == "exit status 1: " + "x" * (SHOWN_BYTES - 4) + "end"
    assert error.stderr == b"x" * (TAIL_BYTES - 4) + b"end\n"


async def test_last_words_that_are_no_text_are_marked() -> None:
    error = await failure_of(shell(r"printf '\377\n' >&2; exit 1"))
    assert str(error) == "exit status 1: \N{REPLACEMENT CHARACTER}"


async def test_who_takes_stderr_has_its_last_words() -> None:
    taken = Taken()
    error = await failure_of(shell("echo oops >&2; exit 1"), stderr=lines(taken.take))
    assert (str(error), error.stderr, taken.all) == ("exit status 1", b"", [b"oops"])


async def test_statuses_that_are_no_failure() -> None:
    for status in ("0", "3"):
        async with run(shell("exit $1", status), ok=(0, 3)) as child:
            pass
        assert child.ended is not None
        assert str(child.ended.status) == status
    assert (await failure_of(shell("exit 4"), ok=(0, 3))).status == 4
    assert (await failure_of(["true"], ok=(3,))).status == 0


async def test_nothing_need_be_a_failure() -> None:
    for text, status, number in (("exit 9", 9, None), ("kill -KILL $$", None, signal.SIGKILL)):
        async with run(shell(text), ok=None) as child:
            ended = await child.wait()
        assert (ended.status, ended.signal) == (status, number)


async def test_waiting_twice_says_the_same() -> None:
    async with run(["true"]) as child:
        assert await child.wait() == await child.wait() == child.ended


@pytest.mark.parametrize("options", [{}, {"ok": None}], ids=["", "whatever its status"])
async def test_time_limit_ends_all_of_it(options: Any) -> None:
    mark, begun_s = a_mark(), time.monotonic()
    with nothing_left(mark), pytest.raises(CommandTimeoutError, match="over its time limit: ready") as raised:
        async with run(shell("exec >&2; " + IGNORES_TERM, mark), time_limit_s=0.2, grace_s=0.2, **options):
            pass
    assert raised.value.signal == signal.SIGKILL
    assert 0.4 <= time.monotonic() - begun_s < 5


async def test_program_that_ends_in_its_grace_was_over_its_time_as_well() -> None:
    program = shell("trap 'exit 0' TERM; sleep $1 & wait", a_mark())
    with pytest.raises(CommandTimeoutError) as raised:
        async with run(program, time_limit_s=0.2):
            pass
    assert raised.value.status == 0


async def test_time_limit_that_is_kept_costs_nothing() -> None:
    begun_s = time.monotonic()
    async with run(["true"], time_limit_s=30):
        pass
    assert time.monotonic() - begun_s < 10


async def test_handler_may_end_it() -> None:
    mark = a_mark()
    with nothing_left(mark):
        async with run(["sleep", mark], ok=None) as child:
            await child.end()
            assert (await child.wait()).signal == signal.SIGTERM
            await child.end()


class FakeSentinel:
    """Takes the place of an idle one: says what a real one says only when a disk hangs, or never."""

    def __init__(self, ended: Ended) -> None:
        ours, self._theirs = socket.socketpair()
        ours.setblocking(False)
        of_this_process().warm()
        of_this_process().put_back(Channel(ours))
        self._ended = ended

    def serve(self) -> None:
        """One program."""
        with self._theirs:
            channel = Channel(self._theirs)
            while (message := channel.next()) is None:
                channel.receive()
            assert isinstance(message, Program)
            for fd in channel.take_descriptors():
                os.close(fd)
            channel.send(Started(1))
            channel.send(self._ended)


async def failure_of_fake(ended: Ended, **options: Any) -> CommandError:
    fake = FakeSentinel(ended)
    errors = list[CommandError]()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, fake.serve)
        errors.append(await failure_of(["true"], **options))
    return errors[0]


async def test_status_that_nobody_knows_is_a_failure() -> None:
    error = await failure_of_fake(Ended(None, None, 0, 0, 0, True))
    assert (error.status, error.signal, str(error)) == (None, None, "its exit status is unknown")


async def test_what_would_not_die_is_no_success() -> None:
    error = await failure_of_fake(Ended(0, None, 0, 0, 0, False))
    assert (error.status, str(error)) == (0, "not all of its processes would die")


# --- what can never run ----------------------------------------------------------------------------------

IMPOSSIBLE: list[tuple[Any, str]] = [
    ([], "no program is named"),
    ([""], "no program is named"),
    (["echo", "a\0b"], "argument 1 has a zero byte"),
    (["echo", "\ud800"], "argument 1 cannot be encoded"),
    ("echo a", "a list"),
    (b"echo a", "a list"),
]


@pytest.mark.parametrize(("argv", "text"), IMPOSSIBLE, ids=[repr(argv) for argv, _ in IMPOSSIBLE])
async def test_what_can_never_run_is_refused(argv: Any, text: str) -> None:
    with nothing_left(), pytest.raises(ProgramError, match=text):
        async with run(argv):
            pass


@pytest.mark.parametrize("env", [{"A": "a\0b"}, {"A=": "b"}, {"": "b"}, {"A": "\ud800"}], ids=repr)
async def test_what_can_be_no_environment_is_refused(env: dict[str, str]) -> None:
    with nothing_left(), pytest.raises(ProgramError, match="environment"):
        async with run(["true"], env=env):
            pass


async def test_program_that_is_not_there(tmp_path: Path) -> None:
    with nothing_left(), pytest.raises(StartError, match=r"^ENOENT: .*/no-such-program$"):
        async with run([tmp_path / "no-such-program"]):
            pass


# --- its surroundings ------------------------------------------------------------------------------------


@pytest.fixture
def own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/me",
        "LANG": "C.UTF-8",
        "SECRET": "s",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(process.MARKER, raising=False)
    yield


ALWAYS = {b"PATH": b"/usr/bin:/bin", b"HOME": b"/home/me", b"LANG": b"C.UTF-8"}


@pytest.mark.usefixtures("own_environment")
async def test_program_gets_three_variables_and_no_more() -> None:
    assert environment({}, ()) == ALWAYS
    said = await text_of(["env"])
    assert sorted(said.splitlines()) == ["HOME=/home/me", "LANG=C.UTF-8", "PATH=/usr/bin:/bin"]


@pytest.mark.usefixtures("own_environment")
async def test_variables_that_are_not_set_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANG")
    assert b"LANG" not in environment({}, ["MISSING"])
    assert b"MISSING" not in environment({}, ["MISSING"])


@pytest.mark.usefixtures("own_environment")
async def test_variables_are_passed_by_name_and_given_by_value() -> None:
    assert environment({}, ["SECRET"]) == {**ALWAYS, b"SECRET": b"s"}
    assert environment({"SECRET": "given", "HOME": "/"}, ["SECRET", "HOME"]) == {
        **ALWAYS,
        b"SECRET": b"given",
        b"HOME": b"/",
    }


@pytest.mark.usefixtures("own_environment")
async def test_within_a_job_it_knows_the_job() -> None:
    seen = list[dict[bytes, bytes]]()

    async def job() -> None:
        set_task_job(JOB)
        seen.append(environment({"STOKER_JOB": "of somebody else"}, ()))

    async with anyio.create_task_group() as group:
        group.start_soon(job)
    assert seen == [{**ALWAYS, b"STOKER_JOB": b"job-1", b"STOKER_TOKEN": b"3.7"}]
    assert environment({}, ()) == ALWAYS


@pytest.mark.usefixtures("own_environment")
async def test_mark_of_the_worker_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process.MARKER, "mark")
    assert environment({}, ()) == {**ALWAYS, process.MARKER.encode(): b"mark"}


async def test_directory_is_the_current_one_or_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    assert await text_of(["pwd"]) == f"{tmp_path}\n"
    assert await text_of(["pwd"], directory="below") == f"{tmp_path}/below\n"
    assert await text_of(["pwd"], directory=Path("/")) == "/\n"


async def test_umask_and_limits_are_its_own() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = await text_of(shell("umask; ulimit -n"), umask=0o077, rlimits={"files": 77})
    assert said.split() == ["0077", "77"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


async def test_arguments_arrive_as_they_are() -> None:
    arguments = ["", "a b", "$HOME", "*", "-n", "\N{SNOWMAN}", "line\nline"]
    said = await text_of(python("import sys; print(sys.argv[1:])", *arguments))
    assert said == f"{arguments}\n"


@pytest.mark.parametrize("stdin", [None, b"", Path("/dev/null")], ids=repr)
async def test_program_has_three_descriptors_that_block(stdin: Any) -> None:
    script = "import os; print(os.listdir('/proc/self/fd')[:-1], *map(os.get_blocking, range(3)))"
    said = await text_of(python(script), stdin=stdin, stderr=Counted().take)
    assert said == "['0', '1', '2'] True True True\n"


async def test_output_to_nowhere_and_many_arguments_of_all_kinds(tmp_path: Path) -> None:
    async with run(["sh", b"-c", "exit 0", tmp_path], stdout=DISCARD, stderr=DISCARD) as child:
        pass
    assert child.ended is not None
