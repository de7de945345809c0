"""Programs as jobs in a real pool: through kills of whatever looks after them, nothing of them survives."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import APPS, Stack
from support.waiting import wait_lines, wait_until

from stoker.client.handle import JobHandle
from stoker.worker import process
from stoker.worker.commands import descendants

pytestmark = pytest.mark.slow

ESCAPING = "(setsid env -i /bin/sh -c '(echo $$ >> {marks}; exec sleep 600) & exec sleep 600' &) ; trap '' TERM; sleep 600 & echo $! >> {marks}; wait"
"""In a session of its own, without an environment, orphaned; deaf; and a child."""


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1, "--commands")
        wait_until(stack.command_worker, "the worker for commands is up", deadline_s=20)
        yield stack


def run(stack: Stack, *argv: str, **options: object) -> JobHandle:
    return stack.client.enqueue("command", [list(argv)], **options)  # type: ignore[arg-type] # by name


def escaping(stack: Stack, tmp_path: Path, **options: object) -> tuple[JobHandle, list[int]]:
    """A job that does all it can to survive, and the pids of what it has started."""
    marks = tmp_path / "marks"
    job = run(stack, "/bin/sh", "-c", ESCAPING.format(marks=marks), **options)
    wait_until(
        lambda: marks.exists() and len(marks.read_text().split()) == 2, "it has escaped", deadline_s=10
    )
    return job, tree_of(stack.command_worker())


def tree_of(worker: int) -> list[int]:
    """Everything that lives below a worker, nursery and sentinels included."""
    return [each.pid for each in descendants.below(worker)]


def all_gone(pids: list[int]) -> bool:
    return not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    found = process.stat(pid)
    return found is not None and not found.has_ended


def programs_of(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not process.name_of(pid).startswith("stoker-")]


def test_program_is_run_and_its_output_kept(stack: Stack) -> None:
    job = run(stack, "sh", "-c", "echo out; echo err >&2")
    assert job.wait(20).state == "done"
    (attempt,) = stack.client.show(job.id)["history"]
    assert sorted(attempt["output"].split()) == ["err", "out"]


def test_failure_has_its_status_on_record(stack: Stack) -> None:
    job = run(stack, "sh", "-c", "exit 3", attempts_max=1)
    assert job.wait(20).state == "dead"
    (attempt,) = stack.client.show(job.id)["history"]
    assert (attempt["outcome"], attempt["status"], attempt["reason"]) == ("error", 3, "exit status 3")


def test_pool_that_allows_no_commands_takes_none(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1)
        job = run(stack, "true")
        assert stack.client.why(job.id).reasons[0] == (
            "no connected worker knows kind command, for which a pool needs --commands"
        )


def test_pool_says_which_of_its_programs_does_not_exist(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1, "--commands", "/bin/sh,/no/such/program")
        wait_until(stack.command_worker, "the worker for commands is up", deadline_s=20)
    said = "".join(log.read_text() for log in short_directory.glob("*pool*.log")).splitlines()
    assert [line.partition("program=")[2].split()[0] for line in said if "no_such_program" in line] == [
        "/no/such/program"
    ]


def test_cancel_ends_all_of_it_before_the_job_is_cancelled(stack: Stack, tmp_path: Path) -> None:
    job, tree = escaping(stack, tmp_path)
    programs = programs_of(tree)
    assert len(programs) >= 4
    job.cancel()
    assert job.wait(20).state == "cancelled"
    assert all_gone(programs)
    assert run(stack, "true").wait(20).state == "done"


def test_time_limit_ends_all_of_it(stack: Stack, tmp_path: Path) -> None:
    job, tree = escaping(stack, tmp_path, time_limit_s=1.5, attempts_max=1)
    assert job.wait(20).outcome == "timeout"
    assert all_gone(programs_of(tree))


def test_long_grace_of_a_program_costs_its_neighbour_nothing(stack: Stack, tmp_path: Path) -> None:
    """Without an end to it the worker would be killed, and with it whatever else runs there."""
    go = tmp_path / "go"
    neighbour = run(stack, "sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done", attempts_max=1)
    deaf = stack.client.enqueue(
        "command",
        [["sh", "-c", "trap '' TERM; sleep 600"]],
        {"grace_s": 3600},
        time_limit_s=0.5,
        attempts_max=1,
    )
    assert deaf.wait(30).outcome == "timeout"
    go.touch()
    assert neighbour.wait(20).state == "done"
    assert [row["attempt"] for row in stack.client.show(neighbour.id)["history"]] == [1]


def test_kill_of_the_nursery_is_missed_by_nobody(stack: Stack, tmp_path: Path) -> None:
    job, tree = escaping(stack, tmp_path)
    (nursery,) = [pid for pid in tree if process.name_of(pid) == "stoker-nursery"]
    os.kill(nursery, signal.SIGKILL)
    # The one sentinel is busy, so that another has to be made.
    assert run(stack, "true").wait(20).state == "done"
    programs = programs_of(tree)
    assert all(is_alive(int(pid)) for pid in (tmp_path / "marks").read_text().split())
    job.cancel()
    assert job.wait(20).state == "cancelled"
    assert all_gone(programs)


@pytest.mark.parametrize("victim", ["worker", "zygote", "pool", "sentinel", "worker and nursery"])
def test_kill_of_whoever_looks_after_it_leaves_nothing(stack: Stack, tmp_path: Path, victim: str) -> None:
    _, tree = escaping(stack, tmp_path, attempts_max=1, crashes_max=1)
    worker = stack.command_worker()
    victims = [
        pid for pid in [worker, *tree] if process.name_of(pid).removeprefix("stoker-") in victim.split()
    ]
    found = process.stat(worker)
    assert found is not None
    zygote = process.stat(found.parent)
    assert zygote is not None
    if victim == "zygote":
        victims = [zygote.pid]
    elif victim == "pool":
        victims = [zygote.parent]
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    programs = programs_of(tree)
    wait_until(lambda: all_gone(programs), "nothing of it lives", deadline_s=4)
    if victim != "pool":
        wait_until(stack.command_worker, "there is a worker for commands", deadline_s=20)
        assert run(stack, "true").wait(20).state == "done"


def test_next_pool_kills_what_the_death_of_everything_left(stack: Stack, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    job = run(stack, "sh", "-c", f"setsid sleep 600 & echo $! >> {mark}; trap '' TERM; wait")
    wait_lines(mark, "it runs")
    worker = stack.command_worker()
    stat = process.stat(worker)
    assert stat is not None
    zygote = process.stat(stat.parent)
    assert zygote is not None
    (program,) = [int(pid) for pid in mark.read_text().split()]
    stokers = [pid for pid in tree_of(zygote.parent) if process.name_of(pid).startswith("stoker-")]
    for pid in (zygote.parent, *stokers):
        os.kill(pid, signal.SIGSTOP)
    for pid in (zygote.parent, *stokers):
        os.kill(pid, signal.SIGKILL)
    assert stack.pool is not None
    stack.pool.wait(10)
    stack.start_pool("trials:app", 1, "--commands")
    wait_until(lambda: not is_alive(program), "it is killed", deadline_s=10)
    wait_until(lambda: len(mark.read_text().split()) == 2, "it is run again", deadline_s=20)
    job.cancel()
    assert job.wait(20).state == "cancelled"


def test_next_pool_of_a_broker_leaves_the_others_alone(stack: Stack, tmp_path: Path) -> None:
    job, tree = escaping(stack, tmp_path)
    first = stack.pool
    assert first is not None
    before = tree_of(first.pid)
    assert set(tree) < set(before)
    stack.start_pool("leaving:app", 1)
    assert [pid for pid in before if not is_alive(pid)] == []
    assert "strays_killed" not in (stack.directory / "pool.log").read_text()
    job.cancel()
    assert job.wait(20).state == "cancelled"
    first.terminate()
    assert first.wait(10) == 0


def test_program_finds_the_broker_wherever_it_runs(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1, "--commands", "--socket", os.path.relpath(stack.socket, APPS))
        job = run(stack, "sh", "-c", "echo $STOKER_SOCKET")
        assert job.wait(20).is_done
        assert stack.client.show(job.id)["history"][0]["output"] == f"{stack.socket}\n"


@pytest.mark.parametrize("at", [1, 200_000])
def test_limit_of_output_holds_to_the_byte(stack: Stack, at: int) -> None:
    ends = {}
    for count in (at, at + 1):
        argv = ["head", "-c", str(count), "/dev/zero"]
        job = stack.client.enqueue("command", [argv], {"stdout_bytes_max": at}, attempts_max=1)
        ends[count] = job.wait(20).state
    assert ends == {at: "done", at + 1: "dead"}


def test_drain_lets_a_program_finish(stack: Stack) -> None:
    job = run(stack, "sh", "-c", "sleep 1; echo finished")
    wait_until(lambda: stack.holder_pid(job.id) != 0, "it runs")
    assert stack.pool is not None
    stack.pool.send_signal(signal.SIGTERM)
    assert stack.pool.wait(20) == 0
    assert stack.client.show(job.id)["state"] == "done"
