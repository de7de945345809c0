"""One suite for every client, over real workers: the result of a job, or why there is none."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
from support.clients import KINDS, connected
from support.stack import Stack
from support.waiting import wait_until

from stoker import Client, JobCancelledError, JobDeadError, JobNotFoundError, JobUnfinishedError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One for the module: its tests share nothing but workers."""
    directory = Path(mkdtemp(prefix="stk-", dir="/tmp"))
    with Stack(directory) as stack:
        stack.start_broker("--done-kept", "2s")
        stack.start_pool("results:app", 2)
        yield stack
    rmtree(directory, ignore_errors=True)


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, stack: Stack) -> Iterator[Client]:
    with connected(request.param, stack.socket) as client:
        yield client


@pytest.mark.parametrize("value", [None, 0, "é", b"\0", [1, [2.5]], {"a": {"b": True}}])
def test_result_is_what_the_handler_returned(client: Client, value: Any) -> None:
    assert client.enqueue("echo", [value]).result(timeout_s=10) == value


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("too_large", r"dead \(attempt 1\): permanent error: .*result cannot be kept: result is \d+ bytes"),
        ("unfit", r"dead \(attempt 1\): permanent error: .*result\.seen: set cannot travel"),
        ("refuse", r"dead \(attempt 1\): permanent error: no such customer"),
        ("fail", r"dead \(attempt 1\): attempts used up .*ValueError: on purpose"),
    ],
)
def test_dead_job_says_why_and_gives_no_result(client: Client, kind: str, why: str) -> None:
    with pytest.raises(JobDeadError, match=why) as dead:
        client.enqueue(kind).result(timeout_s=10)
    assert dead.value.outcome.result is None


def test_cancelled_job_gives_no_result(client: Client) -> None:
    handle = client.enqueue("echo", [1], delay_s=60)
    handle.cancel()
    with pytest.raises(JobCancelledError, match=handle.id):
        handle.result(timeout_s=10)


def test_job_that_still_runs_is_unfinished_and_can_be_asked_again(client: Client) -> None:
    handle = client.enqueue("sleep", [0.3])
    wait_until(lambda: client.show(handle.id)["state"] == "leased", "it runs")
    with pytest.raises(JobUnfinishedError, match=r"not finished within 0.01 s: it is leased"):
        handle.result(timeout_s=0.01)
    assert handle.result(timeout_s=10) == "slept"


def test_result_is_gone_after_the_retention(client: Client) -> None:
    handle = client.enqueue("echo", [1])
    assert handle.result(timeout_s=10) == 1
    wait_until(partial(_is_gone, client, handle.id), "the job is pruned", deadline_s=20)
    with pytest.raises(JobNotFoundError, match=handle.id):
        handle.result(timeout_s=10)


def _is_gone(client: Client, id: str) -> bool:
    try:
        client.show(id)
    except JobNotFoundError:
        return True
    return False
