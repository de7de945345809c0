"""What programs say, kept in files by a real pool and removed by a real broker."""

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import python_path
from support.stack import APPS, Stack
from support.waiting import wait_until

from stoker.client.handle import JobHandle

pytestmark = pytest.mark.slow

NUMBERS = b"".join(b"%d\n" % number for number in range(1, 400_001))
CAP = 1_500_000
assert len(NUMBERS) > CAP


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        yield stack


def start(stack: Stack, *options: str) -> None:
    stack.start_broker(*options)
    start_pool(stack)


def start_pool(stack: Stack, *options: str) -> None:
    stack.start_pool("trials:app", 1, "--commands", *options)
    wait_until(stack.command_worker, "the worker for commands is up", deadline_s=20)


def run(stack: Stack, script: str, cap: int = CAP, **options: Any) -> JobHandle:
    return stack.client.enqueue("command", [["sh", "-c", script]], {"keep_output_bytes": cap}, **options)


def files(stack: Stack) -> dict[str, Path]:
    return {path.name: path for path in (stack.data / "output").iterdir()}


def stoker(stack: Stack, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "stoker.cli.main", words[0], "--socket", stack.socket, *words[1:]],
        cwd=APPS,
        env=os.environ | {"PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=30,
    )


def test_bytes_are_exact_up_to_the_cap(stack: Stack) -> None:
    start(stack)
    outcome = run(stack, "seq 400000; echo err >&2").wait(30)
    result: Any = outcome.result
    said = Path(result["stdout_file"]).read_bytes()
    assert hashlib.sha256(said).digest() == hashlib.sha256(NUMBERS[:CAP]).digest()
    assert result["stdout_dropped_bytes"] == len(NUMBERS) - CAP == result["stdout_bytes"] - CAP
    assert (Path(result["stderr_file"]).read_bytes(), result["stderr_dropped_bytes"]) == (b"err\n", 0)


def test_files_are_private(stack: Stack) -> None:
    start(stack)
    assert run(stack, "umask 0; echo out").wait(30).is_done
    assert stat.S_IMODE((stack.data / "output").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(stack).values()} == {0o600}


def test_each_attempt_has_its_own_and_the_record_says_where(stack: Stack) -> None:
    start(stack)
    job = run(stack, "echo $STOKER_TOKEN; exit 3", attempts_max=2, backoff_s=0.1)
    assert job.wait(30).state == "dead"
    shown = stack.client.show(job.id)
    paths = [files(stack)[f"{shown['number']}-{attempt}.stdout"] for attempt in (1, 2)]
    assert [
        f"its stdout is in {path}" in row["report"] for path, row in zip(paths, shown["history"], strict=True)
    ]
    assert paths[0].read_bytes() != paths[1].read_bytes() != b""


def test_nothing_is_kept_that_nobody_asked_for(stack: Stack) -> None:
    start(stack)
    assert stack.client.enqueue("command", [["echo", "out"]]).wait(30).is_done
    assert files(stack) == {}


def test_tail_and_show_print_all_of_it(stack: Stack) -> None:
    start(stack)
    ran = stoker(stack, "run", "--keep-output", "2MiB", "--", "sh", "-c", "seq 30000; printf 'e\\033' >&2")
    id = ran.stdout.decode().strip()
    assert stack.client.wait(id, timeout_s=30).is_done
    tail = stoker(stack, "tail", id)
    assert (tail.stdout, tail.stderr) == (NUMBERS[: NUMBERS.index(b"30001\n")], b"e\x1b")
    shown = stoker(stack, "show", id, "--output").stdout
    assert b"\n  1\n  2\n" in shown and b"\n  30000\n" in shown and b"\n  e\\x1b\n" in shown


@pytest.mark.parametrize("code", [0, 3])
def test_tail_says_what_is_not_in_the_files(stack: Stack, code: int) -> None:
    start(stack)
    job = stack.client.enqueue(
        "command", [["sh", "-c", f"seq 1000; exit {code}"]], {"keep_output_bytes": 1024}, attempts_max=1
    )
    assert job.wait(30).is_done == (code == 0)
    tail = stoker(stack, "tail", job.id)
    dropped = NUMBERS.index(b"1001\n") - 1024
    assert (tail.stdout, f"{dropped} bytes".encode() in tail.stderr) == (NUMBERS[:1024], True)


def test_tail_says_that_what_is_on_record_is_the_end_only(stack: Stack) -> None:
    start(stack)
    jobs = [stack.client.enqueue("command", [["seq", count]]) for count in ("10000", "20000")]
    assert all(job.wait(30).is_done for job in jobs)
    said = [stoker(stack, "tail", job.id) for job in jobs]
    assert [b"this is the end of it" in each.stderr for each in said] == [False, True]
    assert [len(each.stdout) for each in said] == [48_894, 65_536]
    assert b"(its end)" in stoker(stack, "show", jobs[1].id, "--output").stdout


def test_end_is_printed_where_the_files_are_gone(stack: Stack) -> None:
    start(stack)
    job = run(stack, "echo out")
    assert job.wait(30).is_done
    for path in files(stack).values():
        path.unlink()
    assert stoker(stack, "tail", job.id).stdout == b"out\n"
    assert b"\noutput of attempt 1:\n  out\n" in stoker(stack, "show", job.id, "--output").stdout


def test_files_go_with_the_job_that_is_dropped(stack: Stack) -> None:
    start(stack)
    jobs = [run(stack, "echo out") for _ in range(2)]
    assert all(job.wait(30).is_done for job in jobs)
    assert len(files(stack)) == 4
    stack.client.drop(jobs[0].id)
    wait_until(lambda: len(files(stack)) == 2, "its files are gone", deadline_s=10)
    assert stoker(stack, "tail", jobs[1].id).stdout == b"out\n"


def test_files_go_with_the_job_whose_retention_is_over(stack: Stack) -> None:
    start(stack, "--done-kept", "2s")
    job = run(stack, "echo out")
    assert job.wait(30).is_done
    assert len(files(stack)) == 2
    wait_until(lambda: not files(stack), "its files are gone", deadline_s=20)


def test_what_a_broker_left_behind_goes_at_the_next_start(stack: Stack) -> None:
    start(stack)
    job = run(stack, "echo out")
    assert job.wait(30).is_done
    mine = set(files(stack))
    number = stack.client.show(job.id)["number"]
    stack.kill_broker()
    for other in (number - 1, number + 1, number + 10**6):
        (stack.data / "output" / f"{other}-1.stdout").touch()
    stack.start_broker()
    wait_until(lambda: set(files(stack)) == mine, "the others are gone", deadline_s=10)
    assert stoker(stack, "tail", job.id).stdout == b"out\n"


def test_program_that_runs_while_the_broker_is_killed_has_one_whole_file(
    stack: Stack, tmp_path: Path
) -> None:
    start(stack)
    go = tmp_path / "go"
    job = run(stack, f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two")
    wait_until(lambda: [path for path in files(stack).values() if path.stat().st_size], "it says something")
    stack.kill_broker()
    stack.start_broker()
    go.touch()
    result: Any = job.wait(30).result
    assert Path(result["stdout_file"]).read_bytes() == b"one\ntwo\n"


def test_pool_with_the_directory_of_another_broker_refuses(stack: Stack, short_directory: Path) -> None:
    stack.start_broker()
    (short_directory / "other").mkdir()
    with Stack(short_directory / "other") as other:
        other.start_broker()
        start_pool(stack, "--data", str(other.data))
        outcome = run(stack, "echo out").wait(30)
        assert (outcome.outcome, "not that of this pool's broker" in outcome.reason) == ("permanent", True)
        assert files(other) == {}


def test_link_in_place_of_the_directory_is_not_followed(stack: Stack, tmp_path: Path) -> None:
    start(stack)
    (stack.data / "output").rmdir()
    (stack.data / "output").symlink_to(tmp_path)
    outcome = run(stack, "echo out").wait(30)
    assert outcome.outcome == "permanent"
    assert list(tmp_path.iterdir()) == []
