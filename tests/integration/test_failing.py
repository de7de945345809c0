"""Failures that are hard to report, and deploys that cannot work: with a real broker and a real pool."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.apps.failing import AWKWARD, ODD
from support.stack import APPS, Stack
from support.waiting import wait_until

from stoker import JobSpec
from stoker.config.exits import Exit
from stoker.proto import limits

pytestmark = pytest.mark.slow

JOBS = 1000


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def test_awkward_exceptions_are_reported_and_their_worker_lives_on(stack: Stack) -> None:
    stack.start_pool("failing:app", 1)
    pid = stack.client.enqueue("pid").result(10)
    for how in AWKWARD:
        outcome = stack.client.enqueue("fail", [how]).wait(20)
        (row,) = stack.client.show(outcome.id)["history"]
        assert (outcome.state, row["outcome"]) == ("dead", "error"), how
        assert 0 < len(row["reason"].encode()) <= limits.REASON_BYTES_MAX, how
        assert "in fail" in row["report"], how
    assert stack.client.enqueue("pid").result(10) == pid


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_coroutine_that_raises_anything_has_failed_and_its_loop_lives_on(stack: Stack, loop: str) -> None:
    stack.start_pool("failing:app", 1)
    pid = stack.client.enqueue(f"{loop}_pid").result(10)
    for how, error in ODD.items():
        ended = stack.client.enqueue(f"{loop}_raise", [how]).wait(10)
        assert (ended.state, ended.outcome) == ("dead", "memory" if how == "memory" else "error"), how
        assert type(error).__name__ in ended.reason
    assert stack.client.enqueue(f"{loop}_pid").result(10) == pid


def test_kind_that_cannot_work_obeys_backoff_and_kills_no_job_at_once(stack: Stack) -> None:
    stack.start_pool("failing:app", 2)
    jobs = stack.client.enqueue_many(JobSpec("need_what_was_forgotten") for _ in range(JOBS))
    wait_until(lambda: stack.queue()["ready"] + stack.queue()["leased"] == 0, "each was tried", deadline_s=20)
    assert stack.queue()["dead"] == 0
    shown = stack.client.show(jobs[-1].id)
    assert (shown["state"], shown["attempt"]) == ("scheduled", 1)
    assert "ModuleNotFoundError: " in shown["reason"]


def test_app_that_does_not_import_touches_no_job(stack: Stack) -> None:
    stack.client.enqueue_many(JobSpec("fail", ["circle"]) for _ in range(JOBS))
    command = [sys.executable, "-m", "stoker.cli.main", "pool", "failing_to_import:app"]
    with (stack.directory / "pool.log").open("ab") as log:
        code = subprocess.call([*command, "--socket", stack.socket], cwd=APPS, stderr=log, timeout=20)
    assert code == Exit.UNAVAILABLE
    assert Counter((job["state"], job["attempt"]) for job in stack.client.jobs()) == {("ready", 0): JOBS}
