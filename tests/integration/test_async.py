"""Coroutine handlers in real workers: side by side, ended by cancelling, through kills and restarts."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import Stack
from support.waiting import wait_until

from stoker.client.handle import JobHandle, JobOutcome

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.start_pool("waiting:app", 1)
        wait_until(lambda: len(async_workers(stack)) == 2, "both loops are up", deadline_s=20)
        yield stack


def async_workers(stack: Stack) -> list[int]:
    """Pids of the workers that run coroutines."""
    return [worker["pid"] for worker in stack.workers() if worker["slots"] == 100]


def end(stack: Stack, kind: str, *args: object, **options: object) -> JobOutcome:
    return stack.client.enqueue(kind, args, **options).wait(20)  # type: ignore[arg-type] # by name


def running(stack: Stack, *handles: JobHandle) -> bool:
    return all(stack.holder_pid(handle.id) for handle in handles)


@pytest.mark.parametrize("kind", ["nap", "asyncio_nap"])
def test_hundred_jobs_wait_side_by_side_each_knowing_itself(stack: Stack, kind: str) -> None:
    handles = [stack.client.enqueue(kind, [1.0]) for _ in range(100)]
    wait_until(lambda: stack.queue()["leased"] == 100, "all run at once", deadline_s=10)
    outcomes = [handle.wait(20) for handle in handles]
    assert [outcome.result for outcome in outcomes] == [handle.id for handle in handles]
    assert [outcome.attempt for outcome in outcomes] == [1] * 100


def test_plain_kinds_go_to_the_plain_worker(stack: Stack) -> None:
    assert end(stack, "plain", 41).result == 42


@pytest.mark.parametrize(
    ("kind", "args", "outcome"),
    [
        ("fail", [], "error"),
        ("fail", [True], "permanent"),
        ("exit_loop", [], "error"),
        ("cancel_itself", [], "error"),
    ],
)
def test_exception_is_the_end_of_its_attempt_alone(
    stack: Stack, kind: str, args: list[object], outcome: str
) -> None:
    beside = stack.client.enqueue("nap", [1.0])
    assert end(stack, kind, *args, attempts_max=1).outcome == outcome
    assert beside.wait(20).attempt == 1


@pytest.mark.parametrize("kind", ["tidy_up", "asyncio_tidy_up"])
def test_time_limit_cancels_and_the_handler_may_tidy_up(stack: Stack, tmp_path: Path, kind: str) -> None:
    outcome = end(stack, kind, str(tmp_path / "mark"), time_limit_s=0.3, attempts_max=1)
    assert outcome.outcome == "timeout"
    assert (tmp_path / "mark").read_text() == "tidied up"


def test_cancelled_job_is_cancelled_and_its_neighbour_goes_on(stack: Stack, tmp_path: Path) -> None:
    beside = stack.client.enqueue("nap", [1.0])
    handle = stack.client.enqueue("tidy_up", [str(tmp_path / "mark")])
    wait_until(lambda: running(stack, handle, beside), "both run")
    handle.cancel()
    assert handle.wait(10).state == "cancelled"
    assert (tmp_path / "mark").exists()
    assert (beside.wait(10).attempt, beside.wait(10).outcome) == (1, "ok")


def test_handler_that_swallows_the_end_and_returns_has_failed(stack: Stack) -> None:
    outcome = end(stack, "swallow", time_limit_s=0.3, attempts_max=1)
    assert (outcome.state, outcome.outcome) == ("dead", "timeout")


def test_handler_that_does_not_end_is_killed_and_its_neighbours_are_not_charged(
    short_directory: Path,
) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker("--kill-grace", "300ms")
        stack.start_pool("waiting:app", 1)
        beside = stack.client.enqueue("nap", [2.0])
        stuck = stack.client.enqueue("never_end", time_limit_s=0.5, attempts_max=1)
        wait_until(lambda: running(stack, beside, stuck), "both run", deadline_s=20)
        assert stuck.wait(20).outcome == "timeout"
        assert beside.wait(20).state == "done"
        shown = stack.client.show(beside.id)
        assert [row["outcome"] for row in shown["history"]] == ["released", "ok"]
        assert shown["charged"] == 0


def test_crash_charges_none_of_its_neighbours(stack: Stack, tmp_path: Path) -> None:
    beside = [stack.client.enqueue("nap", [1.0]) for _ in range(5)]
    killer = stack.client.enqueue("kill_worker", [str(tmp_path / "once")])
    assert killer.wait(20).state == "done"
    for handle in beside:
        assert handle.wait(20).state == "done"
        assert stack.client.show(handle.id)["charged"] == 0


def test_job_that_kills_every_worker_is_found_out_and_its_neighbours_finish(stack: Stack) -> None:
    beside = [stack.client.enqueue("nap", [0.5]) for _ in range(3)]
    killer = stack.client.enqueue("always_kill_worker", crashes_max=2, backoff_s=0.1)
    outcome = killer.wait(60)
    assert (outcome.state, outcome.outcome) == ("dead", "crash")
    assert "crashes_max=2" in outcome.reason
    assert [handle.wait(30).state for handle in beside] == ["done"] * 3
    assert [stack.client.show(handle.id)["crashes"] for handle in beside] == [0] * 3


def test_running_coroutines_outlive_the_broker(stack: Stack) -> None:
    handles = [stack.client.enqueue("nap", [2.0]) for _ in range(20)]
    wait_until(lambda: stack.queue().get("leased") == 20, "all run")
    stack.kill_broker()
    stack.start_broker()
    for handle in handles:
        assert (handle.wait(20).state, handle.wait(20).attempt) == ("done", 1)


def test_term_lets_running_jobs_finish_and_gives_back_the_rest(stack: Stack, tmp_path: Path) -> None:
    marks = [tmp_path / str(number) for number in range(3)]
    running_jobs = [stack.client.enqueue("mark_and_nap", [str(mark), 2.0]) for mark in marks]
    wait_until(lambda: all(mark.exists() for mark in marks), "all run")
    assert stack.pool is not None
    stack.pool.send_signal(signal.SIGTERM)
    wait_until(lambda: "drain_begins" in (stack.directory / "pool.log").read_text(), "it drains")
    late = stack.client.enqueue("nap", [0.0])
    assert stack.pool.wait(20) == 0
    assert [handle.wait(5).attempt for handle in running_jobs] == [1, 1, 1]
    assert stack.client.show(late.id)["attempt"] == 0


def test_loop_that_is_held_up_keeps_its_leases(stack: Stack) -> None:
    beside = stack.client.enqueue("nap", [0.5], lease_s=1)
    holder = stack.client.enqueue("hold_the_loop", [3.0], lease_s=1)
    assert holder.wait(20).attempt == 1
    assert beside.wait(20).attempt == 1
