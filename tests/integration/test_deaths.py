"""Who dies with whom: a supervisor with its workers, a broker with its pool, a worker turned into something else."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import Stack
from support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def kill_pool(stack: Stack) -> None:
    """SIGKILL of the supervisor, and reaped."""
    assert stack.pool is not None
    stack.pool.send_signal(signal.SIGKILL)
    stack.pool.wait(10)


def outcomes(stack: Stack, job_id: str) -> list[str]:
    return [row["outcome"] for row in stack.client.show(job_id)["history"]]


def test_death_of_a_supervisor_costs_only_what_was_running(stack: Stack, tmp_path: Path) -> None:
    stack.start_pool("trials:app", 8)
    log = str(tmp_path / "marks")
    running = [stack.client.enqueue("run", [log, 30]) for _ in range(8)]
    wait_until(lambda: stack.queue()["leased"] == 8, "all run")
    waiting = [stack.client.enqueue("noop") for _ in range(40)]
    kill_pool(stack)
    wait_until(lambda: not stack.workers(), "the workers have followed", deadline_s=10)
    assert [outcomes(stack, job.id) for job in running] == [["shutdown"]] * 8
    assert [stack.client.show(job.id)["attempt"] for job in waiting] == [0] * 40


def test_job_of_a_pool_that_was_killed_with_its_broker_runs_again_soon_and_uncharged(
    stack: Stack, tmp_path: Path
) -> None:
    stack.start_pool("trials:app", 2)
    job = stack.client.enqueue("run", [str(tmp_path / "marks"), 2.0], attempts_max=1)
    wait_until(lambda: bool(stack.holder_pid(job.id)), "it runs")
    stack.kill_broker()
    kill_pool(stack)
    stack.start_broker()
    stack.start_pool("trials:app", 2)
    assert job.wait(12).state == "done"
    shown = stack.client.show(job.id)
    assert (outcomes(stack, job.id), shown["charged"], shown["crashes"]) == (["shutdown", "ok"], 0, 0)


def test_worker_that_became_another_program_is_ended_by_its_time_limit(stack: Stack) -> None:
    stack.start_pool("trials:app", 1)
    outcome = stack.client.enqueue("become_sleep").wait(20)
    assert (outcome.state, outcome.outcome) == ("dead", "timeout")
