"""Handles and outcomes."""

import pytest
from support.scripted_broker import ScriptedBroker

from stoker.client.handle import JobHandle, JobOutcome
from stoker.client.sync import Client
from stoker.proto import messages


@pytest.mark.parametrize(
    ("state", "is_finished", "is_done"),
    [
        ("scheduled", False, False),
        ("ready", False, False),
        ("leased", False, False),
        ("done", True, True),
        ("dead", True, False),
        ("cancelled", True, False),
    ],
)
def test_outcome_tells_finished_from_done(state: str, is_finished: bool, is_done: bool) -> None:
    outcome = JobOutcome("a", state, None, "", None, 0)
    assert (outcome.is_finished, outcome.is_done) == (is_finished, is_done)


def test_handle_waits_for_its_own_job(socket_path: str) -> None:
    answer = messages.Waited("a", "done", "ok", "", None, 1)
    with ScriptedBroker(socket_path, lambda _: answer) as broker, Client(socket_path) as client:
        assert JobHandle(client, "a", 1).wait(timeout_s=2).is_done
        assert broker.requests[0].message == messages.Wait("a", 2000)


def test_handle_cancels_its_own_job(socket_path: str) -> None:
    answer = messages.Cancelled("a", "cancelled")
    with ScriptedBroker(socket_path, lambda _: answer) as broker, Client(socket_path) as client:
        assert JobHandle(client, "a", 1).cancel() == "cancelled"
        assert broker.requests[0].message == messages.Cancel("a")


def test_handle_shows_its_id() -> None:
    assert "order-1" in repr(JobHandle(Client("/s"), "order-1", 1))
