"""Limits, isolation and deaths from the command line to `show`: broker, pool and worker together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stack import Stack
from support.waiting import wait_lines, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        deaths = str(short_directory / "deaths")
        stack.start_pool("confined:app", 1, STOKER_POOL_MEMORY_LIMIT="64MiB", DEATHS=deaths)
        yield stack


def last_attempt(stack: Stack, kind: str, **options: Any) -> dict[str, Any]:
    """The record of the attempt that ended a job."""
    job = stack.client.enqueue(kind, **options)
    job.wait(10)
    history: list[dict[str, Any]] = stack.client.show(job.id)["history"]
    return history[-1]


def test_limit_of_the_pool_ends_an_attempt_and_not_its_worker(stack: Stack) -> None:
    (worker,) = stack.workers()
    attempt = last_attempt(stack, "take_without_end", attempts_max=1)
    assert (attempt["outcome"], attempt["signal"]) == ("memory", None)
    assert attempt["reason"] == "MemoryError: over its memory limit of 64MiB"
    assert stack.client.enqueue("pid").result(10) == worker["pid"]


def test_limit_does_not_grow_with_what_threads_have_taken_before(stack: Stack) -> None:
    taken = [stack.client.enqueue("mib_to_be_had", [threads]).result(20) for threads in (1, 0, 4, 0, 4, 0)]
    assert max(taken) <= 64


def test_crash_of_an_isolated_job_is_on_record_and_its_worker_lives_on(stack: Stack) -> None:
    (worker,) = stack.workers()
    attempt = last_attempt(stack, "crash")
    assert (attempt["outcome"], attempt["signal"]) == ("crash", 11)
    assert attempt["memory_peak_bytes"] > 0
    assert stack.client.enqueue("pid").result(10) == worker["pid"]


def test_hook_is_told_of_a_death_by_crashes_until_it_has_taken_it(stack: Stack) -> None:
    job = stack.client.enqueue("crash_worker")
    deaths = stack.directory / "deaths"
    assert wait_lines(deaths, "the hook was told", deadline_s=40) == f"{job.id} crash 2\n"
    (notice,) = list(stack.client.jobs(kind="crash_worker.on_dead"))
    wait_until(lambda: stack.client.show(notice["id"])["state"] == "done", "the notice is done")


def test_notice_outlives_the_broker_that_made_it(stack: Stack) -> None:
    assert stack.pool is not None
    job = stack.client.enqueue("pid", delay_s=60, expires_s=0.3)
    stack.pool.terminate()
    stack.pool.wait(10)
    wait_until(lambda: stack.client.show(job.id)["state"] == "dead", "it has expired")
    stack.kill_broker()
    stack.start_broker()
    stack.start_pool("confined:app", 1, DEATHS=str(stack.directory / "deaths"))
    assert wait_lines(stack.directory / "deaths", "the hook was told", deadline_s=40).split()[0] == job.id


def test_client_that_the_worker_has_used_serves_isolated_jobs_and_the_worker_again(stack: Stack) -> None:
    kinds = ("pass_on", "pass_on_isolated", "pass_on_isolated", "pass_on")
    ids = [stack.client.enqueue(kind).result(10) for kind in kinds]
    assert len(set(ids)) == 4
    for id in ids:
        assert stack.client.wait(id, 10).state == "done"
