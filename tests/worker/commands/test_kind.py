"""An attempt of the kind `command`: real programs, and what becomes of how they ended."""

import json
import os
import resource
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from support.followed import Audience, unfollowed
from support.programs import living
from support.shell import eventually
from support.waiting import until, wait_at_rest, wait_until

from stoker.client.values import decode_value
from stoker.proto import limits
from stoker.proto.messages import STDERR, STDOUT
from stoker.proto.statefiles import LOCK, OUTPUT
from stoker.proto.work import Ack, Nack, Release
from stoker.worker import process
from stoker.worker.async_attempt import Strike
from stoker.worker.commands import attend, kind
from stoker.worker.commands.command import Rules
from stoker.worker.commands.files import OpenFiles, OutputDirectory
from stoker.worker.commands.kind import attempt_of
from stoker.worker.commands.run import of_this_process

TOKEN = (1, 7)


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    of_this_process().close()


def attempt(*argv: str, rules: Rules | None = None, **options: Any) -> Ack | Nack | Release:
    """How it ends, by the answer that the broker would get."""
    return trio.run(attempt_of, TOKEN, payload(*argv, **options), Strike(), rules or Rules(), unfollowed())


def payload(*argv: str, **options: Any) -> bytes:
    return json.dumps({"argv": list(argv), **options}).encode()


def nack(*argv: str, **options: Any) -> Nack:
    answer = attempt(*argv, **options)
    assert isinstance(answer, Nack), answer
    return answer


def test_success_says_what_it_took_and_what_was_said() -> None:
    answer = attempt("sh", "-c", "echo out; echo err >&2")
    assert isinstance(answer, Ack)
    assert answer.result is not None
    result = decode_value(answer.result)
    assert (result["status"], result["stdout_bytes"], result["stderr_bytes"], result["left_count"]) == (
        0,
        4,
        4,
        0,
    )
    assert result["memory_peak_bytes"] > limits.MIB
    assert answer.output is not None
    assert sorted(answer.output.splitlines()) == ["err", "out"]


def test_rest_of_a_flood_that_is_over_before_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hasty:
        def nap_s(self, count: int) -> float:
            return 1e-9

    monkeypatch.setattr(attend, "OF_THIS_PROCESS", Hasty())
    answer = attempt("sh", "-c", "yes | head -c 1000000")
    assert isinstance(answer, Ack), answer
    assert answer.result is not None
    assert decode_value(answer.result)["stdout_bytes"] == 1_000_000


@pytest.mark.parametrize(
    ("status", "options", "outcome"),
    [
        (0, {}, "ok"),
        (3, {}, "error"),
        (3, {"ok": [0, 3]}, "ok"),
        (0, {"ok": [3]}, "error"),
        (3, {"permanent": [3]}, "permanent"),
        (4, {"permanent": [3]}, "error"),
        (3, {"retry": [3]}, "error"),
        (4, {"retry": [3]}, "permanent"),
        (3, {"retry": [3], "permanent": [3]}, "permanent"),
    ],
    ids=str,
)
def test_exit_status_decides(status: int, options: dict[str, Any], outcome: str) -> None:
    answer = attempt("sh", "-c", f"exit {status}", **options)
    if isinstance(answer, Ack):
        assert outcome == "ok"
        return
    assert isinstance(answer, Nack)
    assert (answer.outcome, answer.status, answer.reason) == (outcome, status, f"exit status {status}")


def test_signal_is_an_error_whatever_statuses_are_ok() -> None:
    answer = nack("sh", "-c", "kill -9 $$", ok=[0, 9, 137])
    assert (answer.outcome, answer.signal, answer.status, answer.reason) == (
        "error",
        9,
        None,
        "signal 9 (Killed)",
    )


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["no-such-program"], "ENOENT: No such file or directory: no-such-program"),
        (["/etc"], "EACCES: Permission denied: /etc"),
        (["true", "x" * 200_000], "E2BIG: Argument list too long: true"),
    ],
    ids=["missing", "a directory", "too long"],
)
def test_program_that_cannot_be_started_is_a_failed_attempt(argv: list[str], reason: str) -> None:
    answer = nack(*argv)
    assert (answer.outcome, answer.reason, answer.status, answer.signal) == ("error", reason, None, None)


def test_directory_that_is_missing_is_named() -> None:
    answer = nack("true", directory="/no/such/place")
    assert (answer.outcome, answer.reason) == ("error", "ENOENT: No such file or directory: /no/such/place")


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'["true"]',
        b'{"argv": []}',
        b'{"argv": ["a\\u0000b"]}',
        b'{"argv": ["true", "\\ud800"]}',
        b'{"argv": ["true"], "directory": "/\\ud800"}',
        b'{"argv": ["true"], "env": {"A": "\\ud800"}}',
        b'{"argv": ["true"], "stdin": "\\ud800"}',
        b'{"argv": ["true"], "stdin_file": "\\ud800"}',
        b'{"argv": ["true"], "shell": true}',
        b"\x00",
    ],
    ids=str,
)
def test_request_that_can_never_work_is_permanent(data: bytes) -> None:
    answer = trio.run(attempt_of, TOKEN, data, Strike(), Rules(), unfollowed())
    assert isinstance(answer, Nack)
    assert answer.outcome == "permanent"


def in_files(directory: Path, low_water_bytes: int = 0) -> OpenFiles:
    """What makes the files of attempt 2 of job 9 in a state directory there."""
    (directory / OUTPUT).mkdir(mode=0o700)
    (directory / LOCK).write_text("4711\n")
    return partial(OutputDirectory(os.fsencode(directory), low_water_bytes).open, 9, 2)


def test_result_says_where_its_output_is(tmp_path: Path) -> None:
    data = payload("sh", "-c", "head -c 3000 /dev/zero; echo err >&2", keep_output_bytes=2000)
    answer = trio.run(attempt_of, TOKEN, data, Strike(), Rules(), unfollowed(), in_files(tmp_path))
    assert isinstance(answer, Ack)
    assert answer.result is not None
    result = decode_value(answer.result)
    assert Path(result["stdout_file"]).read_bytes() == bytes(2000)
    assert Path(result["stderr_file"]).read_bytes() == b"err\n"
    assert (result["stdout_dropped_bytes"], result["stderr_dropped_bytes"]) == (1000, 0)


def test_report_of_a_failure_says_where_its_output_is(tmp_path: Path) -> None:
    data = payload("sh", "-c", "echo out; exit 3", keep_output_bytes=2000)
    answer = trio.run(attempt_of, TOKEN, data, Strike(), Rules(), unfollowed(), in_files(tmp_path))
    assert isinstance(answer, Nack)
    path = tmp_path / OUTPUT / "9-2.stdout"
    assert answer.report.splitlines()[0] == f"its stdout is in {path}"
    assert path.read_text() == "out\n"


def test_trouble_with_the_disk_is_none_of_the_program(tmp_path: Path) -> None:
    data = payload("sh", "-c", "echo out; exit 3", keep_output_bytes=2000)
    full = in_files(tmp_path, limits.INTEGER_MAX)
    answer = trio.run(attempt_of, TOKEN, data, Strike(), Rules(), unfollowed(), full)
    assert isinstance(answer, Nack)
    assert (answer.outcome, answer.reason, answer.output) == ("error", "exit status 3", "out\n")
    assert "without the last 4 bytes" in answer.report


def test_pool_that_cannot_keep_output_starts_nothing(tmp_path: Path) -> None:
    answer = nack("touch", str(tmp_path / "mark"), keep_output_bytes=2000)
    assert answer.outcome == "permanent"
    assert answer.reason.endswith("run it as the user of its broker, with the --data of that")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "size", [0, limits.KEEP_OUTPUT_BYTES_MIN - 1, limits.KEEP_OUTPUT_BYTES_MAX + 1, "1KiB"]
)
def test_file_of_a_size_that_makes_no_sense_is_permanent(size: object) -> None:
    answer = nack("true", keep_output_bytes=size)
    assert (answer.outcome, "keep_output_bytes" in answer.reason) == ("permanent", True)


def test_program_that_is_not_in_the_list_is_permanent() -> None:
    answer = nack("sh", "-c", "true", rules=Rules(["/bin/true"]))
    assert (answer.outcome, answer.reason) == (
        "permanent",
        "this pool runs only /bin/true, each named by just that path",
    )


def test_stdin_is_text_a_file_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("from a file\n")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"stdin": "from the job\n"}, "from the job\n"),
        ({"stdin_file": str(tmp_path / "given")}, "from a file\n"),
        ({"stdin_file": "given", "directory": str(tmp_path)}, "from a file\n"),
        ({}, ""),
    ]
    for options, said in cases:
        answer = attempt("cat", **options)
        assert isinstance(answer, Ack)
        assert answer.output == said


def test_stdin_file_that_is_missing_is_a_failed_attempt() -> None:
    answer = nack("cat", stdin_file="/no/such/file")
    assert (answer.outcome, answer.reason) == ("error", "ENOENT: No such file or directory: /no/such/file")


def test_only_the_end_of_a_flood_is_kept() -> None:
    answer = attempt("sh", "-c", "seq 1 200000; echo done")
    assert isinstance(answer, Ack)
    assert answer.output is not None
    assert answer.output.endswith("199999\n200000\ndone\n")
    assert len(answer.output) <= limits.OUTPUT_BYTES_MAX


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_more_than_the_limit_ends_it(stream: str) -> None:
    redirected = ">&2" if stream == "stderr" else ""
    bounded: dict[str, Any] = {f"{stream}_bytes_max": 1000}
    answer = nack("sh", "-c", f"yes {redirected}", **bounded)
    assert (answer.outcome, answer.reason) == ("error", "output limit: more than 1000 bytes")
    within = attempt("sh", "-c", f"head -c 1000 /dev/zero {redirected}", **bounded)
    assert isinstance(within, Ack)


def test_what_it_leaves_behind_is_counted() -> None:
    answer = nack("sh", "-c", "sleep 600 & sleep 600 & exit 3")
    assert answer.report == "2 processes that it had left behind were killed"


@pytest.mark.parametrize(("reason", "outcome"), [("timeout", "timeout"), ("cancelled", "cancelled")])
def test_strike_ends_all_of_it_and_says_how(tmp_path: Path, reason: str, outcome: str) -> None:
    mark = tmp_path / "mark"
    script = f"trap '' TERM; sleep 600 & echo $$ $! > {mark}; echo said; wait"

    async def has_begun() -> bool:
        return mark.exists() and mark.read_text().endswith("\n")

    async def struck() -> Ack | Nack | Release:
        strike = Strike()
        answers: list[Ack | Nack | Release] = []

        async def run() -> None:
            data = payload("sh", "-c", script, grace_s=0.2)
            answers.append(await attempt_of(TOKEN, data, strike, Rules(), unfollowed()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await eventually(has_begun, "it runs")
            strike.fall(reason)
        return answers[0]

    answer = trio.run(struck)
    assert isinstance(answer, Nack)
    assert (answer.outcome, answer.signal, answer.output) == (outcome, 9, "said\n")
    pids = [int(pid) for pid in mark.read_text().split()]
    wait_until(lambda: all(process.stat(pid) is None for pid in pids), "both are gone", deadline_s=2)


def test_followers_of_what_was_ended_are_told_what_they_have_not_had() -> None:
    audience, strike = Audience("keep"), Strike()

    async def ended() -> Ack | Nack | Release:
        async with trio.open_nursery() as nursery:

            async def strike_it() -> None:
                await until(lambda: len(audience.live.tail.data) == 10_000, "all is said")
                strike.fall("timeout")

            nursery.start_soon(strike_it)
            data = payload("sh", "-c", "yes | head -c 10000; sleep 600")
            return await attempt_of(TOKEN, data, strike, Rules(), audience.live)

    answer = trio.run(ended)
    assert isinstance(answer, Nack)
    # The first chunk was never answered, so nothing else could be sent.
    last = audience.waiting[-1][0]
    assert (answer.outcome, last.stream, last.offset, last.data) == ("timeout", STDOUT, 10_000, b"")


def test_grace_ends_before_the_worker_would_be_killed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "SPARE_S", 0.8)
    strike = Strike()

    async def deaf() -> Ack | Nack | Release:
        data = payload("sh", "-c", "trap '' TERM; echo deaf; sleep 600", grace_s=600)
        audience = Audience()
        async with trio.open_nursery() as nursery:

            async def strike_it() -> None:
                await until(lambda: audience.live.tail.data, "it is deaf")
                strike.fall("cancelled", 1000)

            nursery.start_soon(strike_it)
            return await attempt_of(TOKEN, data, strike, Rules(), audience.live)

    async def within() -> Ack | Nack | Release:
        with trio.fail_after(30):
            return await deaf()

    answer = trio.run(within)
    assert isinstance(answer, Nack)
    assert (answer.outcome, answer.reason, answer.signal) == ("cancelled", "its program was ended", 9)


def test_machine_without_descriptors_gives_the_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "SHORT_S", 0.2)
    attempt("true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(process.open_descriptors()) + 6, hard))
    try:

        async def short() -> Ack | Nack | Release:
            taken = list[int]()
            try:
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            try:
                return await attempt_of(TOKEN, payload("true"), Strike(), Rules(), unfollowed())
            finally:
                for fd in taken:
                    os.close(fd)

        begun_s = time.monotonic()
        assert trio.run(short) == Release(TOKEN, "not_started")
        assert time.monotonic() - begun_s >= kind.SHORT_S, (
            "else the machine has one more who asks again and again"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert isinstance(attempt("true"), Ack)


def test_sentinel_that_is_killed_is_a_crash(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    answer = nack("sh", "-c", f"cat /proc/$PPID/comm > {mark}; kill -9 $PPID; sleep 600")
    assert mark.read_text() == "stoker-sentinel\n"
    assert answer.outcome == "crash"
    assert answer.reason.startswith("its sentinel ")
    assert isinstance(attempt("true"), Ack)


def test_many_side_by_side_each_have_their_own_end() -> None:
    async def all_of_them() -> list[Any]:
        answers: dict[int, Any] = {}

        async def one(number: int) -> None:
            data = payload("sh", "-c", f"echo {number}; exit {number}")
            answers[number] = await attempt_of(TOKEN, data, Strike(), Rules(), unfollowed())

        async with anyio.create_task_group() as tasks:
            for number in range(1, 41):
                tasks.start_soon(one, number)
        return [(answers[number].status, answers[number].output) for number in range(1, 41)]

    assert trio.run(all_of_them) == [(number, f"{number}\n") for number in range(1, 41)]


# --- followers ----------------------------------------------------------------------------------------------


async def taken_of(audience: Audience, data: bytes, strike_when: bytes = b"") -> Ack | Nack | Release:
    """The answer of an attempt whose output is taken as it comes; it is struck when that has been said."""
    answers: list[Ack | Nack | Release] = []
    strike = Strike()

    async def attempt() -> None:
        answers.append(await attempt_of(TOKEN, data, strike, Rules(), audience.live))

    def take() -> bool:
        audience.take_all()
        if strike_when and strike_when in audience.taken[STDOUT]:
            strike.fall("cancelled")
        return bool(answers)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt)
        await until(take, "its end", deadline_s=30)
    return answers[0]


def test_program_that_had_to_wait_for_its_followers_goes_on() -> None:
    audience = Audience("block")
    answer = trio.run(taken_of, audience, payload("sh", "-c", "seq 300000; seq 300000 >&2"))
    assert isinstance(answer, Ack)
    expected = b"".join(b"%d\n" % number for number in range(1, 300_001))
    assert audience.taken == {STDOUT: expected, STDERR: expected}


def test_last_words_of_a_program_that_is_ended_are_heard() -> None:
    audience = Audience("keep")
    script = "trap 'echo ending; exit 5' TERM; echo begun; while :; do sleep 0.05; done"
    answer = trio.run(taken_of, audience, payload("sh", "-c", script), b"begun")
    assert (answer.outcome if isinstance(answer, Nack) else "") == "cancelled"
    assert audience.taken[STDOUT] == b"begun\nending\n"


def test_end_of_a_program_counts_although_a_strike_comes_while_its_followers_are_waited_for() -> None:
    audience = Audience("block")

    async def struck_late() -> Ack | Nack | Release:
        answers: list[Ack | Nack | Release] = []
        strike = Strike()

        async def attempt() -> None:
            data = payload("sh", "-c", "echo said")
            answers.append(await attempt_of(TOKEN, data, strike, Rules(), audience.live))

        async def has_ended() -> bool:
            return bool(audience.waiting) and not living("echo said")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt)
            await eventually(has_ended, "its output waits")
            await wait_at_rest(0.2)
            strike.fall("shutdown")
        return answers[0]

    assert isinstance(trio.run(struck_late), Ack)
