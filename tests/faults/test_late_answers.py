"""A broker that was stopped as it was asked: later calls get their own answers, a repeat is the same job."""

import os
import signal
from collections.abc import Iterator

import pytest
from support.stack import Stack

from stoker import Client, OutcomeUnknown
from stoker.proto.errors import ClientTimeoutError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def hasty(stack: Stack) -> Iterator[Client]:
    """A client that waits half a second, connected to a broker that is about to be stopped."""
    with Client(stack.socket, timeout_s=0.5) as client:
        client.status()
        yield client


class Stopped:
    """The broker does nothing while the block runs."""

    def __init__(self, stack: Stack) -> None:
        assert stack.broker is not None
        self._pid = stack.broker.pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


def test_calls_after_a_timeout_get_their_own_answers(stack: Stack, hasty: Client) -> None:
    with Stopped(stack), pytest.raises(ClientTimeoutError):
        hasty.status()
    first = hasty.enqueue("a", id="first")
    assert hasty.status()["totals"]["ready"] == 1
    second = hasty.enqueue("a", id="second")
    assert [first.id, second.id] == ["first", "second"]
    assert [hasty.show(id)["id"] for id in ("first", "second")] == ["first", "second"]


def test_enqueue_that_timed_out_is_unknown_and_its_repeats_are_one_job(stack: Stack, hasty: Client) -> None:
    with Stopped(stack), pytest.raises(OutcomeUnknown):
        hasty.enqueue("a", id="mine")
    handles = [hasty.enqueue("a", id="mine") for _ in range(2)]
    assert {(handle.id, handle.number) for handle in handles} == {("mine", handles[0].number)}
    assert stack.client.status()["totals"]["ready"] == 1


def test_enqueue_without_an_id_that_timed_out_is_at_most_one_job(stack: Stack, hasty: Client) -> None:
    with Stopped(stack), pytest.raises(OutcomeUnknown):
        hasty.enqueue("a")
    hasty.enqueue("b")
    kinds = sorted(job["kind"] for job in stack.client.jobs())
    assert kinds in (["a", "b"], ["b"])
