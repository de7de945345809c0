"""One suite for every client, over the real broker's code: what each word does to a job."""

import threading
from collections.abc import Iterator

import pytest
from support.clients import Connect
from support.threaded_broker import broker_at
from support.waiting import wait_until

from stoker import Client, JobSpec
from stoker.broker.core.rules import Rules
from stoker.proto.errors import (
    ConflictError,
    JobNotFoundError,
    NotDeadError,
    NotFinishedError,
    QueueFullError,
)
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules


@pytest.fixture
def client(connect: Connect, socket_path: str) -> Iterator[Client]:
    rules = Rules(queues={"narrow": QueueRules(jobs_max=1, overflow=Overflow.WAIT)})
    with broker_at(socket_path, rules=rules), connect() as client:
        yield client


def test_same_id_and_body_is_the_same_job(client: Client) -> None:
    first = client.enqueue("k", [1], id="a")
    assert client.enqueue("k", [1], id="a").number == first.number
    with pytest.raises(ConflictError):
        client.enqueue("k", [2], id="a")


def test_id_made_by_the_client_is_that_of_the_job(client: Client) -> None:
    handle = client.enqueue("k")
    assert client.show(handle.id)["number"] == handle.number


def test_every_job_of_enqueue_many_is_stored(client: Client) -> None:
    handles = client.enqueue_many(JobSpec("k", [number], id=f"job-{number}") for number in range(1500))
    assert [handle.id for handle in handles] == [f"job-{number}" for number in range(1500)]
    assert len(list(client.jobs())) == 1500


def test_job_that_does_not_finish_in_time_is_told_as_it_is(client: Client) -> None:
    outcome = client.enqueue("k").wait(timeout_s=0.05)
    assert (outcome.state, outcome.is_finished) == ("ready", False)


def test_cancelled_job_is_final(client: Client) -> None:
    handle = client.enqueue("k", delay_s=60)
    assert handle.cancel() == "cancelled"
    assert handle.wait().state == "cancelled"
    assert handle.cancel() == "cancelled"


def test_job_that_is_not_there_is_not_found(client: Client) -> None:
    for call in (client.show, client.wait, client.why, client.cancel, client.drop, client.kick):
        with pytest.raises(JobNotFoundError):
            call("nobody")


def test_only_the_finished_are_dropped_and_only_the_dead_are_kicked(client: Client) -> None:
    handle = client.enqueue("k")
    with pytest.raises(NotFinishedError):
        client.drop(handle.id)
    with pytest.raises(NotDeadError):
        client.kick(handle.id)
    handle.cancel()
    assert client.drop(handle.id) == 1


def test_pause_is_shown_until_resume(client: Client) -> None:
    client.enqueue("k", queue="mail")
    client.pause("mail")
    assert any("paused" in reason for reason in client.why(client.enqueue("k", queue="mail").id).reasons)
    client.resume("mail")
    assert client.drain(timeout_s=0) == 0


def test_payload_is_shown_to_whoever_asks(client: Client) -> None:
    handle = client.enqueue("k", payload=b"raw")
    assert client.show(handle.id, payload=True)["payload"] == b"raw"


def test_enqueue_that_waits_for_room_is_refused_when_its_time_is_over(client: Client) -> None:
    client.enqueue("k", queue="narrow")
    with pytest.raises(QueueFullError):
        client.enqueue("k", queue="narrow", wait_s=0.05)


def test_enqueue_that_waits_for_room_holds_up_no_other_call(client: Client) -> None:
    first = client.enqueue("k", queue="narrow", id="first")
    stored: list[str] = []

    def enqueue() -> None:
        stored.append(client.enqueue("k", queue="narrow", id="second", wait_s=30).id)

    waiting = threading.Thread(target=enqueue)
    waiting.start()
    wait_until(lambda: client.status()["queues"]["narrow"]["waiting_for_room"], "one waits for room")
    first.cancel()
    waiting.join(10)
    assert stored == ["second"]


def test_long_wait_holds_up_no_other_call(client: Client) -> None:
    handle = client.enqueue("k", delay_s=60)
    states: list[str] = []
    waiting = threading.Thread(target=lambda: states.append(handle.wait().state))
    waiting.start()
    for _ in range(20):
        client.status()
    handle.cancel()
    waiting.join(10)
    assert states == ["cancelled"]
