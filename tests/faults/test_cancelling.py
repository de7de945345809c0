"""Cancelled means that nothing of it runs, whenever it is said and whatever happens then."""

import os
import signal
from pathlib import Path

import pytest
from support.faults import cancels
from support.stack import Stack
from support.waiting import wait_until

from stoker import JobHandle
from stoker.proto.errors import JobNotFoundError, RefusedError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CANCELS = 120


def test_cancel_at_any_moment_is_what_it_says(seed: int) -> None:
    tally = cancels.run(seed, CANCELS)
    assert list(tally.violations) == []
    assert tally.counts["cancels"] == CANCELS
    assert tally.counts["kills"] == CANCELS // cancels.ROUNDS_A_KILL
    assert tally.counts["cancelling"] and tally.counts["too_late"]


def test_broker_that_lets_a_cancelled_job_run_is_found_out(seed: int) -> None:
    tally = cancels.run_with("support.faults.broken.careless_cancel:main", seed, 12, final_s=0.3)
    assert any("not what was said" in each or "it was started" in each for each in tally.violations), tally


def cancelled(job: JobHandle) -> bool:
    return job.cancel() == "cancelled" and job.wait(timeout_s=20).state == "cancelled"


def test_job_that_waits_is_cancelled_at_once_and_twice_is_as_once(stack: Stack) -> None:
    ready = stack.client.enqueue("run", ["x", 0])
    delayed = stack.client.enqueue("run", ["x", 0], delay_s=60)
    assert cancelled(ready) and cancelled(delayed)
    assert cancelled(ready)


def test_job_that_waits_for_its_retry_is_cancelled_and_not_tried_again(stack: Stack) -> None:
    stack.start_pool("trials:app", 1)
    job = stack.client.enqueue("fail", [str(stack.directory / "marks")], backoff_s=60, attempts_max=9)
    wait_until(lambda: stack.client.show(job.id)["state"] == "scheduled", "it waits for its retry")
    assert cancelled(job)
    assert [each["outcome"] for each in stack.client.show(job.id)["history"]] == ["error"]


@pytest.mark.parametrize(("kind", "arguments", "state"), [("noop", [], "done"), ("leave", ["exit"], "dead")])
def test_final_state_is_told_and_not_overwritten(
    stack: Stack, kind: str, arguments: list[str], state: str
) -> None:
    stack.start_pool("trials:app", 1)
    job = stack.client.enqueue(kind, arguments)
    assert job.wait(timeout_s=20).state == state
    with pytest.raises(RefusedError, match=f"already {state}") as caught:
        job.cancel()
    assert caught.value.code == "too_late"
    assert stack.client.show(job.id)["state"] == state


def test_unknown_job_is_not_found(stack: Stack) -> None:
    with pytest.raises(JobNotFoundError):
        stack.client.cancel("nobody")


def running(stack: Stack) -> tuple[JobHandle, Path]:
    """A job that would run for a minute."""
    stack.start_pool("trials:app", 1)
    marks = stack.directory / "marks"
    job = stack.client.enqueue("run", [str(marks), 60.0])
    wait_until(marks.exists, "the job runs", deadline_s=20)
    return job, marks


def test_cancel_is_heard_during_a_drain(stack: Stack) -> None:
    job, marks = running(stack)
    assert stack.pool is not None
    stack.pool.send_signal(signal.SIGTERM)
    wait_until(lambda: "drain_begins" in (stack.directory / "pool.log").read_text(), "the pool drains")
    assert job.cancel() == "cancelling"
    assert job.wait(timeout_s=20).state == "cancelled"
    assert stack.pool.wait(20) == 0
    assert "end" not in marks.read_text()


def test_cancel_survives_the_broker_that_answered_it(stack: Stack) -> None:
    job, marks = running(stack)
    pid = stack.holder_pid(job.id)
    os.kill(pid, signal.SIGSTOP)
    assert job.cancel() == "cancelling"
    stack.kill_broker()
    stack.start_broker()
    os.kill(pid, signal.SIGCONT)
    assert job.wait(timeout_s=30).state == "cancelled"
    assert "end" not in marks.read_text()
