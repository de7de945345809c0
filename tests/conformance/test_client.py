"""One suite for every client, over a scripted broker: losses, repeats, timeouts, refusals, answers.

What only one of them has (threads, forks, cancelled tasks, several loops) is in `tests/client`.
"""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clients import Connect
from support.scripted_broker import (
    Close,
    Drip,
    Hang,
    Raw,
    Request,
    ScriptedBroker,
    answer_frame,
    stores_everything,
)

from stoker import Client
from stoker.client.values import ValueRefusedError, encode_value
from stoker.proto import messages
from stoker.proto.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    ConflictError,
    OutcomeUnknown,
    RefusedError,
    StorageFullError,
)
from stoker.proto.messages import Message


def reports(request: Request) -> Message:
    """A script for status: says which connection asked."""
    return messages.StatusReport({"connection": request.connection, "request": request.number})


def first(*replies: Any, then: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """A script that gives each of `replies` once and then does as `then`."""
    left = list(replies)
    return lambda request: left.pop(0) if left else then(request)


def test_enqueue_returns_a_handle_of_the_stored_job(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, connect() as client:
        handle = client.enqueue("resize", [1], id="a")
        assert (handle.id, handle.number) == ("a", ord("a"))
        assert broker.messages(messages.Enqueue)[0].kind == "resize"


def test_calls_one_after_the_other_share_one_connection(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker, connect() as client:
        assert [client.status()["connection"] for _ in range(5)] == [1] * 5
        assert broker.connection_count == 1


def test_refusal_is_raised_and_the_connection_stays(connect: Connect, socket_path: str) -> None:
    script = first(messages.Refusal("conflict", "another body"), then=stores_everything)
    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        with pytest.raises(ConflictError, match="another body"):
            client.enqueue("k", id="a")
        client.enqueue("k", id="b")
        assert broker.connection_count == 1


def test_no_socket_says_what_to_start(connect: Connect, socket_path: str) -> None:
    with connect() as client, pytest.raises(BrokerUnreachableError, match=rf"{socket_path}.*stoker up"):
        client.status()


def test_dead_socket_says_what_to_start(connect: Connect, socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(socket_path)
        with connect() as client, pytest.raises(BrokerUnreachableError, match=r"nobody listens.*stoker up"):
            client.status()


def test_path_of_something_else_says_that_it_is_no_socket(connect: Connect, socket_path: str) -> None:
    Path(socket_path).touch()
    with connect() as client, pytest.raises(BrokerUnreachableError, match=r"no socket.*STOKER_SOCKET"):
        client.status()


def test_full_backlog_is_waited_for_and_then_unreachable(connect: Connect, socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        listener.bind(socket_path)
        listener.listen(0)
        other.connect(socket_path)
        refused = pytest.raises(BrokerUnreachableError, match="does not accept")
        with connect(timeout_s=0.05) as client, refused:
            client.status()


def test_enqueue_without_an_id_is_repeated_with_the_same_id(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, first(Close(), then=stores_everything)) as broker:
        with connect() as client:
            handle = client.enqueue("k")
        sent = broker.messages(messages.Enqueue)
    assert [(message.id, message.fresh) for message in sent] == [(handle.id, True), (handle.id, False)]


def test_enqueue_without_patience_is_unknown_and_carries_its_id(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, connect(retry_s=0) as client:
        with pytest.raises(OutcomeUnknown, match="again with id=") as unknown:
            client.enqueue("k")
        assert [unknown.value.job_id] == [message.id for message in broker.messages(messages.Enqueue)]


def test_enqueue_is_unknown_once_patience_is_used_up(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, connect(retry_s=0.1) as client:
        with pytest.raises(OutcomeUnknown):
            client.enqueue("k", id="a")
        assert {message.id for message in broker.messages(messages.Enqueue)} == {"a"}
        assert len(broker.requests) > 1


def test_change_that_was_sent_is_never_repeated(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, connect() as client:
        with pytest.raises(OutcomeUnknown, match="kick"):
            client.kick(queue="mail")
        assert len(broker.requests) == 1


def test_question_is_repeated_on_a_new_connection(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, first(Close(), then=reports)), connect() as client:
        assert client.status()["connection"] == 2


def test_idle_connection_that_ended_is_replaced_unnoticed(connect: Connect, socket_path: str) -> None:
    script = first(messages.StatusReport({}), then=lambda _: messages.Counted(3))
    with ScriptedBroker(socket_path, script) as broker, connect(retry_s=0) as client:
        client.status()
        broker.close_connections()
        assert client.kick(queue="mail") == 3
        assert len(broker.requests) == 2


def test_client_once_connected_waits_for_a_broker_that_restarts(connect: Connect, socket_path: str) -> None:
    with connect() as client:
        with ScriptedBroker(socket_path, reports):
            client.status()
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.status()))
        thread.start()
        with ScriptedBroker(socket_path, reports) as second:
            thread.join(10)
            assert len(second.requests) == 1
        assert len(answers) == 1


def test_client_once_connected_gives_up_when_patience_is_used_up(connect: Connect, socket_path: str) -> None:
    with connect(retry_s=0.05) as client:
        with ScriptedBroker(socket_path, reports):
            client.status()
        with pytest.raises(BrokerUnreachableError):
            client.status()


def test_broker_that_stops_is_asked_again(connect: Connect, socket_path: str) -> None:
    script = first(messages.Refusal("shutting_down", "stopping"), then=stores_everything)
    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        client.enqueue("k", id="a")
        assert broker.connection_count == 2


def test_refusal_of_a_repeat_that_says_nothing_of_the_first_is_unknown(
    connect: Connect, socket_path: str
) -> None:
    script = first(Close(), then=lambda _: messages.Refusal("storage_full", "the disk is full"))
    with ScriptedBroker(socket_path, script), connect() as client:
        with pytest.raises(OutcomeUnknown, match="the disk is full"):
            client.enqueue("k", id="a")
        with pytest.raises(StorageFullError):
            client.enqueue("k", id="b")


def test_refused_connection_is_a_refusal_not_an_unknown_outcome(connect: Connect, socket_path: str) -> None:
    refusal = answer_frame(0, messages.Refusal("too_many_connections", "256 is the limit"))
    with ScriptedBroker(socket_path, lambda _: Raw(refusal)), connect() as client:
        with pytest.raises(RefusedError, match="256") as refused:
            client.enqueue("k")
        assert refused.value.code == "too_many_connections"


def test_bytes_that_are_no_protocol_leave_an_enqueue_unknown(connect: Connect, socket_path: str) -> None:
    foreign = Raw(b"HTTP/1.1 400\r\n\r\n")
    with ScriptedBroker(socket_path, lambda _: foreign) as broker, connect(retry_s=0) as client:
        with pytest.raises(OutcomeUnknown, match="frame"):
            client.enqueue("k")
        assert broker.connection_count == 1


def test_question_that_is_overdue_times_out(connect: Connect, socket_path: str) -> None:
    with (
        ScriptedBroker(socket_path, lambda _: Hang()) as broker,
        connect(timeout_s=0.05) as client,
    ):
        with pytest.raises(ClientTimeoutError, match=r"0\.05 s"):
            client.status()
        assert len(broker.requests) == 1


def test_enqueue_that_is_overdue_is_unknown(connect: Connect, socket_path: str) -> None:
    with (
        ScriptedBroker(socket_path, lambda _: Hang()) as broker,
        connect(timeout_s=0.05) as client,
    ):
        with pytest.raises(OutcomeUnknown) as unknown:
            client.enqueue("k", id="order-1")
        assert unknown.value.job_id == "order-1"
        assert len(broker.requests) == 1


@pytest.mark.slow
def test_call_after_a_timeout_never_gets_the_late_answer(connect: Connect, socket_path: str) -> None:
    thawed = threading.Event()

    def script(request: Request) -> Message:
        if request.connection == 1:
            thawed.wait(10)
        return reports(request)

    with ScriptedBroker(socket_path, script) as broker, connect(timeout_s=1) as client:
        with pytest.raises(ClientTimeoutError):
            client.status()
        thawed.set()
        assert [client.status()["connection"] for _ in range(3)] == [2, 2, 2]
        assert broker.connection_count == 2


def test_answer_that_trickles_does_not_extend_the_time(connect: Connect, socket_path: str) -> None:
    drip = Drip(b"\0\0\1\0" + b"x" * 256, 0.02)
    with ScriptedBroker(socket_path, lambda _: drip), connect(timeout_s=0.1) as client:
        started = time.monotonic()
        with pytest.raises(ClientTimeoutError):
            client.status()
        assert time.monotonic() - started < 2


def test_wait_decodes_the_result(connect: Connect, socket_path: str) -> None:
    answer = messages.Waited("a", "done", "ok", "", encode_value({"sum": 3}), 2)
    with ScriptedBroker(socket_path, lambda _: answer), connect() as client:
        outcome = client.wait("a", timeout_s=1)
    assert outcome.is_done
    assert outcome == ("a", "done", "ok", "", {"sum": 3}, 2)


def test_result_of_a_foreign_worker_stays_bytes(connect: Connect, socket_path: str) -> None:
    answer = messages.Waited("a", "done", "ok", "", b"plain text", 1)
    with ScriptedBroker(socket_path, lambda _: answer), connect() as client:
        assert client.wait("a").result == b"plain text"


def test_wait_may_take_longer_than_other_answers(connect: Connect, socket_path: str) -> None:
    answered = messages.Waited("a", "leased", None, "", None, 1)

    def script(request: Request) -> Message:
        threading.Event().wait(0.1)
        return answered

    with ScriptedBroker(socket_path, script), connect(timeout_s=0.02) as client:
        assert not client.wait("a", timeout_s=0.5).is_finished


def test_wait_that_is_repeated_asks_only_for_the_time_that_is_left(
    connect: Connect, socket_path: str
) -> None:
    answered = messages.Waited("a", "done", "ok", "", None, 1)

    def script(request: Request) -> Any:
        threading.Event().wait(0.05)
        return Close() if request.connection == 1 else answered

    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        client.wait("a", timeout_s=5)
        before, after = [message.timeout_ms for message in broker.messages(messages.Wait)]
    assert before == 5000
    assert 0 < after <= 4950


@pytest.mark.slow
def test_threads_each_get_their_own_answers(connect: Connect, socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything), connect() as client:
        mixed: list[str] = []

        def work(name: str) -> None:
            for count in range(200):
                id = f"{name}-{count:06}"
                if client.enqueue("k", id=id).id != id:
                    mixed.append(id)

        threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert mixed == []


def test_listing_goes_on_until_the_last_page(connect: Connect, socket_path: str) -> None:
    def script(request: Request) -> Message:
        if request.message.after == 0:
            return messages.JobsPage([{"id": "a"}, {"id": "b"}], 2)
        return messages.JobsPage([{"id": "c"}], 0)

    with ScriptedBroker(socket_path, script), connect() as client:
        assert [job["id"] for job in client.jobs(queue="mail")] == ["a", "b", "c"]


Verb = tuple[Callable[[Client], Any], Message, Any, Message]
VERBS: list[Verb] = [
    (lambda c: c.cancel("a"), messages.Cancelled("a", "cancelling"), "cancelling", messages.Cancel("a")),
    (lambda c: c.drop("a"), messages.Counted(1), 1, messages.Drop("a")),
    (lambda c: c.pause("q"), messages.Done(), None, messages.Pause("q")),
    (lambda c: c.resume(), messages.Done(), None, messages.Resume()),
    (lambda c: c.drain(2), messages.Drained(1), 1, messages.Drain(2000)),
    (lambda c: c.show("a"), messages.Shown({"id": "a"}), {"id": "a"}, messages.Show("a")),
    (lambda c: c.why("a"), messages.Because("a", "ready", ["x"]), ("a", "ready", ["x"]), messages.Why("a")),
    (lambda c: c.snapshot("s"), messages.SnapshotWritten("/s", 9), ("/s", 9), messages.Snapshot("s")),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: type(verb[3]).__name__)
def test_verb_asks_and_answers(connect: Connect, socket_path: str, verb: Verb) -> None:
    call, answer, expected, asked = verb
    with ScriptedBroker(socket_path, lambda _: answer) as broker, connect() as client:
        assert call(client) == expected
        assert broker.requests[0].message == asked


def test_question_that_was_repeated_and_is_overdue_times_out(connect: Connect, socket_path: str) -> None:
    script = first(Close(), then=lambda _: Hang())
    with (
        ScriptedBroker(socket_path, script),
        connect(timeout_s=0.05) as client,
        pytest.raises(ClientTimeoutError),
    ):
        client.status()


def test_value_that_cannot_travel_is_refused_before_anything_is_sent(
    connect: Connect, socket_path: str
) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, connect() as client:
        with pytest.raises(ValueRefusedError, match=r"args\[0\]"):
            client.enqueue("k", [{1, 2}])
        assert broker.requests == []


def test_result_is_what_the_handler_returned(connect: Connect, socket_path: str) -> None:
    def script(request: Request) -> Message:
        if isinstance(request.message, messages.Enqueue):
            return stores_everything(request)
        return messages.Waited("a", "done", "ok", "", encode_value({"sum": 3}), 2)

    with ScriptedBroker(socket_path, script) as broker, connect() as client:
        assert client.enqueue("k", id="a").result(timeout_s=2) == {"sum": 3}
        assert broker.messages(messages.Wait) == [messages.Wait("a", 2000)]


def test_handle_waits_for_and_cancels_its_own_job(connect: Connect, socket_path: str) -> None:
    def script(request: Request) -> Message:
        if isinstance(request.message, messages.Enqueue):
            return stores_everything(request)
        if isinstance(request.message, messages.Cancel):
            return messages.Cancelled(request.message.id, "cancelling")
        return messages.Waited(request.message.id, "leased", None, "", None, 1)

    with ScriptedBroker(socket_path, script), connect() as client:
        handle = client.enqueue("k", id="a")
        assert (handle.wait(timeout_s=0).state, handle.cancel()) == ("leased", "cancelling")
