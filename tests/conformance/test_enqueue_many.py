"""enqueue_many of every client: a bounded window, every job accounted for, losses that are made good."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients import Connect
from support.scripted_broker import Close, Hang, Request, ScriptedBroker, stores_everything
from support.waiting import wait_until

from stoker.client.pipeline import WINDOW_COUNT, EnqueueManyError
from stoker.client.spec import JobSpec
from stoker.proto import messages
from stoker.proto.errors import BrokerUnreachableError, OutcomeUnknown, QueueFullError
from stoker.proto.messages import Message

FULL = messages.Refusal("queue_full", "queue mail is full")


def specs(count: int) -> list[JobSpec]:
    return [JobSpec("k", [number], id=f"job-{number:05}") for number in range(count)]


def refuses(*ids: str) -> Any:
    def script(request: Request) -> Message:
        return FULL if request.message.id in ids else stores_everything(request)

    return script


def test_handles_come_in_the_order_of_the_jobs(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, connect() as client:
        handles = client.enqueue_many(specs(300))
        assert [handle.id for handle in handles] == [f"job-{number:05}" for number in range(300)]
        assert broker.connection_count == 1


def test_nothing_to_store_is_no_error(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything), connect() as client:
        assert client.enqueue_many([]) == []


def test_window_bounds_what_is_on_its_way(connect: Connect, socket_path: str) -> None:
    thawed = threading.Event()
    taken: list[int] = []

    def source() -> Iterator[JobSpec]:
        for number in range(WINDOW_COUNT + 100):
            taken.append(number)
            yield JobSpec("k", id=str(number))

    def script(request: Request) -> Message:
        thawed.wait(10)
        return stores_everything(request)

    with ScriptedBroker(socket_path, script), connect() as client:
        thread = threading.Thread(target=client.enqueue_many, args=(source(),))
        thread.start()
        wait_until(lambda: len(taken) == WINDOW_COUNT, "the window is full")
        thawed.set()
        thread.join(10)
    assert len(taken) == WINDOW_COUNT + 100


def test_refusal_ends_the_sending_and_tells_what_was_stored(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, refuses("job-00003")), connect() as client:
        with pytest.raises(EnqueueManyError, match="queue mail is full") as refused:
            client.enqueue_many(specs(5))
        error = refused.value
        assert isinstance(error.__cause__, QueueFullError)
        assert error.index == 3
        assert [handle is not None for handle in error.handles] == [True, True, True, False, True]
        assert error.unsettled == []


def test_nothing_new_is_sent_after_a_refusal(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, refuses("job-00000")) as broker, connect() as client:
        with pytest.raises(EnqueueManyError):
            client.enqueue_many(specs(5 * WINDOW_COUNT))
        assert len(broker.requests) <= WINDOW_COUNT


def test_connection_is_usable_after_a_refusal(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, refuses("job-00000")) as broker, connect() as client:
        with pytest.raises(EnqueueManyError):
            client.enqueue_many(specs(3))
        client.enqueue("k")
        assert broker.connection_count == 1


def test_iterable_that_fails_leaves_no_job_unaccounted(connect: Connect, socket_path: str) -> None:
    def source() -> Iterator[JobSpec]:
        yield from specs(2)
        raise ZeroDivisionError("the caller's own")

    with ScriptedBroker(socket_path, stores_everything), connect() as client:
        with pytest.raises(EnqueueManyError, match="the caller's own") as failed:
            client.enqueue_many(source())
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        assert all(failed.value.handles)


def test_lost_connection_repeats_what_was_not_answered(connect: Connect, socket_path: str) -> None:
    def script(request: Request) -> Any:
        lost = request.connection == 1 and request.message.id == "job-00010"
        return Close() if lost else stores_everything(request)

    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        handles = client.enqueue_many(JobSpec("k", id=f"job-{number:05}") for number in range(40))
        assert [handle.id for handle in handles] == [f"job-{number:05}" for number in range(40)]
        again = [request.message.id for request in broker.requests if request.connection == 2]
        assert again == sorted(again)
        assert again[0] == "job-00010"


def test_repeated_jobs_are_no_longer_fresh(connect: Connect, socket_path: str) -> None:
    def script(request: Request) -> Any:
        return Close() if request.connection == 1 else stores_everything(request)

    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        client.enqueue_many([JobSpec("k")])
        assert [message.fresh for message in broker.messages(messages.Enqueue)] == [True, False]


def test_loss_without_patience_names_the_unsettled(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()), connect(retry_s=0) as client:
        with pytest.raises(EnqueueManyError) as lost:
            client.enqueue_many(specs(3))
        assert isinstance(lost.value.__cause__, OutcomeUnknown)
        assert lost.value.unsettled == ["job-00000", "job-00001", "job-00002"]
        assert lost.value.handles == [None, None, None]


def test_answers_that_are_overdue_leave_the_jobs_unsettled(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Hang()), connect(timeout_s=0.05) as client:
        with pytest.raises(EnqueueManyError) as overdue:
            client.enqueue_many(specs(2))
        assert isinstance(overdue.value.__cause__, OutcomeUnknown)
        assert overdue.value.unsettled == ["job-00000", "job-00001"]


def test_absent_broker_stores_nothing(connect: Connect, socket_path: str) -> None:
    with connect() as client, pytest.raises(EnqueueManyError) as absent:
        client.enqueue_many(specs(2))
    assert isinstance(absent.value.__cause__, BrokerUnreachableError)
    assert absent.value.unsettled == []


def test_what_a_stopping_broker_refused_goes_to_its_successor(connect: Connect, socket_path: str) -> None:
    stopping = messages.Refusal("shutting_down", "stopping")

    def script(request: Request) -> Message:
        return stopping if request.connection == 1 else stores_everything(request)

    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        assert len(client.enqueue_many(specs(3))) == 3
        assert broker.connection_count == 2
