"""Jobs sent ahead of the one that runs, with real processes: quick ones in bundles, and none behind a slow one."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.faults.runs import Runs
from support.paths import python_path
from support.stack import TESTS, Stack
from support.waiting import wait_until

from stoker import JobSpec, TooLateError
from stoker.broker.core.rules import Rules
from stoker.proto import limits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MANY = 2000


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    """Two workers that have shown that they are quick."""
    with Stack(short_directory) as stack:
        stack.start_broker()
        environ = {"NOTES": str(short_directory), "STOKER_POOL_PREFETCH": str(limits.PREFETCH_MAX)}
        stack.start_pool("counting:app", 2, **environ, PYTHONPATH=python_path(TESTS))
        wait_all_done(stack, put(stack, (2 * Rules().quick_runs, 0)))
        yield stack


def put(stack: Stack, *naps: tuple[int, int]) -> list[str]:
    """Enqueue jobs, (how many, how many ms each takes); their ids."""
    specs = (JobSpec("nap", [ms]) for count, ms in naps for _ in range(count))
    return [job.id for job in stack.client.enqueue_many(specs)]


def ahead(stack: Stack) -> list[dict[str, Any]]:
    """Workers that hold more than the job they run."""
    return [worker for worker in stack.workers() if len(worker["jobs"]) > 1]


def wait_all_done(stack: Stack, ids: Sequence[str]) -> None:
    for id in ids:
        assert stack.client.wait(id, timeout_s=60).state == "done"


def runs_of(stack: Stack) -> Counter[str]:
    """How often each job began."""
    return Counter({id: len(tokens) for id, tokens in Runs(stack.directory / "runs").tokens().items()})


def outcomes(stack: Stack, id: str) -> list[str]:
    return [row["outcome"] for row in stack.client.show(id)["history"]]


def test_quick_jobs_go_in_bundles_and_each_runs_once(stack: Stack) -> None:
    ids = put(stack, (MANY, 0))
    wait_all_done(stack, ids)
    assert set(runs_of(stack).values()) == {1}


def test_nobody_waits_behind_a_job_that_turns_out_slow(stack: Stack) -> None:
    slow_ms = 4000
    stack.client.pause()
    ids = put(stack, (40, 0), (1, slow_ms), (40, 0))
    stack.client.resume()
    slow = ids.pop(40)
    begin = time.monotonic()
    wait_all_done(stack, ids)
    assert time.monotonic() - begin < slow_ms / 2000
    assert stack.client.show(slow)["state"] == "leased"
    wait_all_done(stack, [slow])
    assert set(runs_of(stack).values()) == {1}
    assert {tuple(outcomes(stack, id)) for id in (*ids, slow)} == {("ok",)}


def test_cancelled_jobs_ahead_do_not_begin_or_are_ended(stack: Stack) -> None:
    ids = put(stack, (MANY, 1))
    cancelled: set[str] = set()
    while len(cancelled) < 5 and stack.queue().get("ready", 0) > MANY // 4:
        for worker in ahead(stack):
            with suppress(TooLateError):
                stack.client.cancel(worker["jobs"][-1])
                cancelled.add(worker["jobs"][-1])
    wait_all_done(stack, [id for id in ids if id not in cancelled])
    counts = runs_of(stack)
    for id in cancelled:
        assert stack.client.wait(id, timeout_s=20).state in ("cancelled", "done")
        # One that began before it could be taken back was told to end, and may have been over by then.
        assert counts[id] == len(outcomes(stack, id)) <= 1
    assert cancelled


@pytest.mark.parametrize("victims", ["worker", "broker", "both"])
def test_kill_costs_no_job_and_each_second_run_has_its_reason(stack: Stack, victims: str) -> None:
    ids = put(stack, (MANY, 1))
    (busy, *_) = wait_until(lambda: ahead(stack), "some are ahead")
    if victims in ("broker", "both"):
        stack.kill_broker()
    if victims in ("worker", "both"):
        os.kill(busy["pid"], signal.SIGKILL)
    if victims in ("broker", "both"):
        stack.start_broker()
    wait_all_done(stack, ids)
    again = [id for id, count in runs_of(stack).items() if count > 1]
    reasons = {tuple(outcomes(stack, id)) for id in again}
    assert reasons <= {("crash", "ok")}
    assert victims != "broker" or not again
    crashed = [id for id in ids if "crash" in outcomes(stack, id)]
    # What had begun on that worker: one, or with the broker gone too what it had not been able to tell.
    assert len(crashed) <= (1 if victims == "worker" else 9)
