"""Programs that are followed while they run, by real clients: what comes, whom it holds up, and what a loss costs."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from support.paths import python_path
from support.pools import is_alive
from support.stack import APPS, Stack
from support.waiting import wait_until

from stoker import AsyncClient, Client
from stoker.client.following import Piece
from stoker.client.handle import JobHandle
from stoker.proto import limits
from stoker.proto.messages import STDERR, STDOUT

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1, "--commands")
        wait_until(stack.command_worker, "the worker for programs is up", deadline_s=20)
        yield stack


def put(stack: Stack, script: str, **options: object) -> JobHandle:
    return stack.client.enqueue("command", [["sh", "-c", script]], **options)  # type: ignore[arg-type] # by name


def stoker(stack: Stack, *words: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stoker.cli.main", *words[:1], "--socket", stack.socket, *words[1:]],
        cwd=APPS,
        env=os.environ | {"PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def only_job(stack: Stack) -> str:
    """The id of the one job there is."""
    (job,) = wait_until(lambda: list(stack.client.jobs()), "a job")
    return str(job["id"])


# --- attached -------------------------------------------------------------------------------------------------


def test_program_is_run_as_if_it_ran_here(stack: Stack) -> None:
    attached = stoker(stack, "run", "--wait", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert ended(attached) == (3, b"out\n", b"err\n")


def test_signal_that_ended_it_is_in_the_exit_code(stack: Stack) -> None:
    code, _, err = ended(stoker(stack, "run", "--wait", "--", "sh", "-c", "kill -9 $$"))
    assert (code, b"signal 9" in err) == (137, True)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exec sleep 60", 143), ("trap 'exit 7' TERM; sleep 60 & wait", 7)],
    ids=["TERM", "7"],
)
def test_program_that_is_over_its_time_has_its_own_exit_code_and_is_said_so(
    stack: Stack, script: str, code: int
) -> None:
    attached = stoker(stack, "run", "--wait", "--time-limit", "1s", "--", "sh", "-c", script)
    found, _, err = ended(attached)
    assert (found, b"over its time limit" in err) == (code, True)


def test_reader_that_goes_away_ends_the_command_and_not_the_job(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two; exit 5"
    attached = stoker(stack, "run", "--wait", "--", "sh", "-c", script)
    assert attached.stdout is not None
    assert attached.stderr is not None
    assert attached.stdout.readline() == b"one\n"
    attached.stdout.close()
    go.touch()
    assert attached.wait(30) == 141
    assert b"nobody reads" in attached.stderr.read()
    attached.stderr.close()
    outcome = stack.client.wait(only_job(stack), timeout_s=20)
    assert (outcome.state, outcome.reason.endswith("exit status 5")) == ("dead", True)


def test_program_that_does_not_exist_is_said_so(stack: Stack) -> None:
    code, _, err = ended(stoker(stack, "run", "--wait", "--", "no-such-program"))
    assert (code, b"ENOENT" in err) == (8, True)


def test_program_that_nobody_runs_is_asked_after(stack: Stack) -> None:
    attached = stoker(stack, "run", "--wait", "--delay", "1h", "--", "true")
    assert attached.stderr is not None
    assert b"is scheduled" in attached.stderr.readline()
    attached.send_signal(signal.SIGINT)
    assert ended(attached)[0] == 130
    assert stack.client.show(only_job(stack))["state"] == "cancelled"


ESCAPING = (
    "setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' & trap 'echo ending; exit 5' TERM; wait; wait"
)


def test_interrupt_cancels_it_and_returns_when_nothing_of_it_lives(stack: Stack) -> None:
    attached = stoker(stack, "run", "--wait", "--grace", "200ms", "--", "sh", "-c", ESCAPING)
    assert attached.stdout is not None
    pid = int(attached.stdout.readline())
    attached.send_signal(signal.SIGINT)
    code, out, _ = ended(attached)
    assert (code, out) == (130, b"ending\n")
    assert not is_alive(pid)
    assert stack.client.show(only_job(stack))["state"] == "cancelled"


@pytest.mark.parametrize("options", [[], ["--tied"]])
def test_killing_whoever_is_attached_ends_only_what_is_tied_to_it(stack: Stack, options: list[str]) -> None:
    attached = stoker(stack, "run", "--wait", *options, "--", "sh", "-c", "echo $$; sleep 1; echo done")
    assert attached.stdout is not None
    attached.stdout.readline()
    attached.kill()
    ended(attached)
    outcome = stack.client.wait(only_job(stack), timeout_s=20)
    assert outcome.state == ("cancelled" if options else "done")


def test_job_that_was_somebody_elses_is_not_tied_to_whoever_was_refused(stack: Stack) -> None:
    job = stack.client.enqueue("command", [["sleep", "1"]], id="victim")
    assert ended(stoker(stack, "run", "--wait", "--tied", "--id", "victim", "--", "echo"))[0] == 4
    assert job.wait(20).state == "done"


def test_attempts_are_told_apart(stack: Stack, tmp_path: Path) -> None:
    script = f"echo one; [ -e {tmp_path}/mark ] || {{ touch {tmp_path}/mark; exit 3; }}"
    words = ("--attempts-max", "2", "--backoff", "100ms", "--", "sh", "-c", script)
    assert ended(stoker(stack, "run", "--wait", *words)) == (0, b"one\none\n", b"stoker: attempt 2\n")


def test_program_that_ended_in_time_is_done_however_slow_its_reader_is(stack: Stack) -> None:
    words = ("--time-limit", "3s", "--", "head", "-c", "450000", "/dev/zero")
    attached = stoker(stack, "run", "--wait", *words)
    assert attached.stdout is not None
    os.read(attached.stdout.fileno(), 1)
    assert stack.client.wait(only_job(stack), timeout_s=20).state == "done"
    code, out, err = ended(attached)
    # What came too late for it is told.
    lost = int(err.split()[3]) if err else 0
    assert (code, 1 + len(out) + lost) == (0, 450_000)


# --- tail ------------------------------------------------------------------------------------------------------


def test_tail_says_what_was_said_and_goes_on_if_told_to(stack: Stack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = put(stack, f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two")
    wait_until(
        lambda: ended(stoker(stack, "tail", job.id)) == (0, b"one\n", b""), "it has said so", deadline_s=20
    )
    following = stoker(stack, "tail", "-f", job.id)
    assert following.stdout is not None
    assert following.stdout.readline() == b"one\n"
    go.touch()
    assert ended(following) == (0, b"two\n", b"")
    assert ended(stoker(stack, "tail", "-f", job.id)) == (0, b"one\ntwo\n", b"")


def test_tail_of_what_never_pauses_ends_and_has_no_gap(stack: Stack, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    job = put(stack, f"seq 1000000; touch {mark}; while :; do echo y; sleep 0.05; done")
    wait_until(mark.exists, "it has said much")
    code, out, err = ended(stoker(stack, "tail", job.id))
    assert (code, out.endswith(b"y\n"), err) == (0, True, b"")
    job.cancel()
    assert job.wait(20).state == "cancelled"


def test_tail_of_a_job_that_waits_says_so(stack: Stack) -> None:
    job = put(stack, "true", delay_s=3600)
    code, out, err = ended(stoker(stack, "tail", job.id))
    assert (code, out, b"scheduled and has said nothing" in err) == (0, b"", True)


# --- through losses ---------------------------------------------------------------------------------------------

LINES = 600_000
ALL = b"".join(b"%d\n" % number for number in range(1, LINES + 1))


def test_nothing_is_lost_or_doubled_through_kills_of_the_broker(stack: Stack) -> None:
    job = put(stack, f"exec seq {LINES}", delay_s=0.3)
    said, kills = bytearray(), 0
    with stack.client.follow(job.id, lossless=True) as following:
        for piece in following:
            assert piece.lost_bytes == 0
            said += piece.data
            if len(said) > (kills + 1) * len(ALL) // 4 and kills < 3:
                stack.kill_broker()
                stack.start_broker()
                kills += 1
    assert (following.state, kills) == ("done", 3)
    assert hashlib.sha256(said).digest() == hashlib.sha256(ALL).digest()


def test_slow_reader_of_all_and_quick_one_of_some_come_back_to_what_there_was(stack: Stack) -> None:
    """Whoever is back first after a restart, the program waits for the one who wants all of it."""
    job = put(stack, f"exec seq {LINES}", delay_s=0.5)
    said = bytearray()
    with (
        stack.client.follow(job.id, lossless=True) as following,
        Client(stack.socket).follow(job.id) as other,
    ):
        reader = threading.Thread(target=lambda: [None for _ in other])
        reader.start()
        said += b"".join(piece.data for piece in following.read())
        stack.kill_broker()
        stack.start_broker()
        wait_until(lambda: stack.holder_pid(job.id), "its worker is back")
        threading.Event().wait(1.0)
        for piece in following:
            assert piece.lost_bytes == 0
            said += piece.data
        reader.join(20)
    assert hashlib.sha256(said).digest() == hashlib.sha256(ALL).digest()


def test_flood_is_followed_on_after_a_restart_of_the_broker(stack: Stack) -> None:
    job = put(stack, "exec yes")
    with stack.client.follow(job.id) as following:
        for _ in range(3):
            assert following.read()
        stack.kill_broker()
        stack.start_broker()
        for _ in range(10):
            assert following.read(5)
    job.cancel()
    assert job.wait(20).state == "cancelled"


def test_attempt_that_ends_with_its_worker_is_followed_by_the_next(stack: Stack) -> None:
    job = put(stack, "echo $$; sleep 1; echo end", crashes_max=3)
    texts: list[tuple[int, bytes]] = []
    with stack.client.follow(job.id) as following:
        for piece in following:
            texts.append((following.attempt, piece.data))
            if len(texts) == 1:
                os.kill(stack.command_worker(), signal.SIGKILL)
    assert [attempt for attempt, _ in texts] == [1, 2, 2]
    assert texts[2] == (2, b"end\n")


# --- whom it holds up ---------------------------------------------------------------------------------------------

FLOOD_BYTES = 200 * limits.MIB


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def test_follower_that_is_stopped_holds_up_neither_others_nor_the_program(stack: Stack) -> None:
    """A flood with three followers, of whom one is stopped: the others see all that they can, and nothing grows."""
    assert stack.broker is not None
    job = put(stack, f"head -c {FLOOD_BYTES} /dev/zero; echo the end >&2; sleep 0.5", delay_s=1)
    stopped = stoker(stack, "tail", "-f", job.id)
    following = [stack.client.follow(job.id) for _ in range(2)]
    for each in following:
        each.begin()
    before = peak_bytes(stack.broker.pid)
    stopped.send_signal(signal.SIGSTOP)
    seen: list[list[Piece]] = [[], []]

    def read(index: int) -> None:
        seen[index].extend(following[index])

    readers = [threading.Thread(target=read, args=(index,)) for index in (0, 1)]
    for reader in readers:
        reader.start()
    assert job.wait(60).is_done
    for reader in readers:
        reader.join(20)
    for pieces in seen:
        total = sum(len(piece.data) + piece.lost_bytes for piece in pieces if piece.stream == STDOUT)
        assert total == FLOOD_BYTES
        assert [piece.data for piece in pieces if piece.stream == STDERR] == [b"the end\n"]
    assert peak_bytes(stack.broker.pid) - before < 8 * limits.MIB
    stopped.send_signal(signal.SIGCONT)
    assert ended(stopped)[0] == 0


def test_program_waits_for_a_follower_that_wants_all_of_it(stack: Stack) -> None:
    job = put(stack, "head -c 10000000 /dev/zero", delay_s=0.3)
    with stack.client.follow(job.id, lossless=True) as following:
        first = following.read()
        assert first and not job.wait(1).is_finished
        rest = list(following)
    assert sum(len(piece.data) for piece in [*first, *rest]) == 10_000_000
    assert job.wait(20).is_done


def test_program_goes_on_when_those_who_kept_it_waiting_are_gone(stack: Stack) -> None:
    job = put(stack, "head -c 10000000 /dev/zero", delay_s=0.3)
    with Client(stack.socket).follow(job.id, lossless=True) as following:
        assert following.read()
    assert job.wait(20).is_done


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_follower_in_an_event_loop(stack: Stack, backend: str) -> None:
    async def follow() -> list[Piece]:
        client = AsyncClient(stack.socket)
        async with client.follow("followed", lossless=True) as following:
            await following.begin()
            script = "echo out; sleep 0.2; echo err >&2"
            await client.enqueue("command", [["sh", "-c", script]], id="followed")
            pieces = [piece async for piece in following]
            assert following.state == "done"
        await client.aclose()
        return pieces

    assert anyio.run(follow, backend=backend) == [Piece(STDOUT, b"out\n"), Piece(STDERR, b"err\n")]
