"""The blocking client against a scripted broker: losses, repeats, timeouts, threads and forks."""

import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.forking import forked
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
from support.waiting import wait_until

from stoker.client.sync import Client
from stoker.client.values import encode_value
from stoker.proto import messages
from stoker.proto.address import AddressError
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


def test_enqueue_returns_a_handle_of_the_stored_job(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, Client(socket_path) as client:
        handle = client.enqueue("resize", [1], id="a")
        assert (handle.id, handle.number) == ("a", ord("a"))
        assert broker.messages(messages.Enqueue)[0].kind == "resize"


def test_calls_of_one_thread_share_one_connection(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker, Client(socket_path) as client:
        assert [client.status()["connection"] for _ in range(5)] == [1] * 5
        assert broker.connection_count == 1


def test_refusal_is_raised_and_the_connection_stays(socket_path: str) -> None:
    script = first(messages.Refusal("conflict", "another body"), then=stores_everything)
    with ScriptedBroker(socket_path, script) as broker, Client(socket_path) as client:
        with pytest.raises(ConflictError, match="another body"):
            client.enqueue("k", id="a")
        client.enqueue("k", id="b")
        assert broker.connection_count == 1


def test_no_socket_says_what_to_start(socket_path: str) -> None:
    with pytest.raises(BrokerUnreachableError, match=rf"{socket_path}.*stoker up"):
        Client(socket_path).status()


def test_dead_socket_says_what_to_start(socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(socket_path)
        with pytest.raises(BrokerUnreachableError, match=r"nobody listens.*stoker up"):
            Client(socket_path).status()


def test_path_over_the_limit_is_refused_when_the_client_is_made() -> None:
    with pytest.raises(AddressError, match="107"):
        Client("/tmp/" + "x" * 103)


def test_full_backlog_is_waited_for_and_then_unreachable(socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as other:
        listener.bind(socket_path)
        listener.listen(0)
        other.connect(socket_path)
        with pytest.raises(BrokerUnreachableError, match="does not accept"):
            Client(socket_path, timeout_s=0.05).status()


def test_enqueue_without_an_id_is_repeated_with_the_same_id(socket_path: str) -> None:
    with ScriptedBroker(socket_path, first(Close(), then=stores_everything)) as broker:
        with Client(socket_path) as client:
            handle = client.enqueue("k")
        sent = broker.messages(messages.Enqueue)
    assert [(message.id, message.fresh) for message in sent] == [(handle.id, True), (handle.id, False)]


def test_enqueue_without_patience_is_unknown_and_carries_its_id(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, Client(socket_path, retry_s=0) as client:
        with pytest.raises(OutcomeUnknown, match="again with id=") as unknown:
            client.enqueue("k")
        assert [unknown.value.job_id] == [message.id for message in broker.messages(messages.Enqueue)]


def test_enqueue_is_unknown_once_patience_is_used_up(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, Client(socket_path, retry_s=0.1) as client:
        with pytest.raises(OutcomeUnknown):
            client.enqueue("k", id="a")
        assert {message.id for message in broker.messages(messages.Enqueue)} == {"a"}
        assert len(broker.requests) > 1


def test_change_that_was_sent_is_never_repeated(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()) as broker, Client(socket_path) as client:
        with pytest.raises(OutcomeUnknown, match="kick"):
            client.kick(queue="mail")
        assert len(broker.requests) == 1


def test_question_is_repeated_on_a_new_connection(socket_path: str) -> None:
    with ScriptedBroker(socket_path, first(Close(), then=reports)), Client(socket_path) as client:
        assert client.status()["connection"] == 2


def test_idle_connection_that_ended_is_replaced_unnoticed(socket_path: str) -> None:
    script = first(messages.StatusReport({}), then=lambda _: messages.Counted(3))
    with ScriptedBroker(socket_path, script) as broker, Client(socket_path, retry_s=0) as client:
        client.status()
        broker.close_connections()
        assert client.kick(queue="mail") == 3
        assert len(broker.requests) == 2


def test_client_once_connected_waits_for_a_broker_that_restarts(socket_path: str) -> None:
    with Client(socket_path) as client:
        with ScriptedBroker(socket_path, reports):
            client.status()
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.status()))
        thread.start()
        with ScriptedBroker(socket_path, reports) as second:
            thread.join(10)
            assert len(second.requests) == 1
        assert len(answers) == 1


def test_client_once_connected_gives_up_when_patience_is_used_up(socket_path: str) -> None:
    with Client(socket_path, retry_s=0.05) as client:
        with ScriptedBroker(socket_path, reports):
            client.status()
        with pytest.raises(BrokerUnreachableError):
            client.status()


def test_broker_that_stops_is_asked_again(socket_path: str) -> None:
    script = first(messages.Refusal("shutting_down", "stopping"), then=stores_everything)
    with ScriptedBroker(socket_path, script) as broker, Client(socket_path) as client:
        client.enqueue("k", id="a")
        assert broker.connection_count == 2


def test_refusal_of_a_repeat_that_says_nothing_of_the_first_is_unknown(socket_path: str) -> None:
    script = first(Close(), then=lambda _: messages.Refusal("storage_full", "the disk is full"))
    with ScriptedBroker(socket_path, script), Client(socket_path) as client:
        with pytest.raises(OutcomeUnknown, match="the disk is full"):
            client.enqueue("k", id="a")
        with pytest.raises(StorageFullError):
            client.enqueue("k", id="b")


def test_refused_connection_is_a_refusal_not_an_unknown_outcome(socket_path: str) -> None:
    refusal = answer_frame(0, messages.Refusal("too_many_connections", "256 is the limit"))
    with ScriptedBroker(socket_path, lambda _: Raw(refusal)), Client(socket_path) as client:
        with pytest.raises(RefusedError, match="256") as refused:
            client.enqueue("k")
        assert refused.value.code == "too_many_connections"


def test_bytes_that_are_no_protocol_leave_an_enqueue_unknown(socket_path: str) -> None:
    foreign = Raw(b"HTTP/1.1 400\r\n\r\n")
    with ScriptedBroker(socket_path, lambda _: foreign) as broker, Client(socket_path, retry_s=0) as client:
        with pytest.raises(OutcomeUnknown, match="frame"):
            client.enqueue("k")
        assert broker.connection_count == 1


def test_question_that_is_overdue_times_out(socket_path: str) -> None:
    with (
        ScriptedBroker(socket_path, lambda _: Hang()) as broker,
        Client(socket_path, timeout_s=0.05) as client,
    ):
        with pytest.raises(ClientTimeoutError, match=r"0\.05 s"):
            client.status()
        assert len(broker.requests) == 1


def test_enqueue_that_is_overdue_is_unknown(socket_path: str) -> None:
    with (
        ScriptedBroker(socket_path, lambda _: Hang()) as broker,
        Client(socket_path, timeout_s=0.05) as client,
    ):
        with pytest.raises(OutcomeUnknown) as unknown:
            client.enqueue("k", id="order-1")
        assert unknown.value.job_id == "order-1"
        assert len(broker.requests) == 1


@pytest.mark.slow
def test_call_after_a_timeout_never_gets_the_late_answer(socket_path: str) -> None:
    thawed = threading.Event()

    def script(request: Request) -> Message:
        if request.connection == 1:
            thawed.wait(10)
        return reports(request)

    with ScriptedBroker(socket_path, script) as broker, Client(socket_path, timeout_s=1) as client:
        with pytest.raises(ClientTimeoutError):
            client.status()
        thawed.set()
        assert [client.status()["connection"] for _ in range(3)] == [2, 2, 2]
        assert broker.connection_count == 2


def test_answer_that_trickles_does_not_extend_the_time(socket_path: str) -> None:
    drip = Drip(b"\0\0\1\0" + b"x" * 256, 0.02)
    with ScriptedBroker(socket_path, lambda _: drip), Client(socket_path, timeout_s=0.1) as client:
        started = time.monotonic()
        with pytest.raises(ClientTimeoutError):
            client.status()
        assert time.monotonic() - started < 2


def test_wait_decodes_the_result(socket_path: str) -> None:
    answer = messages.Waited("a", "done", "ok", "", encode_value({"sum": 3}), 2)
    with ScriptedBroker(socket_path, lambda _: answer), Client(socket_path) as client:
        outcome = client.wait("a", timeout_s=1)
    assert outcome.is_done
    assert outcome == ("a", "done", "ok", "", {"sum": 3}, 2)


def test_result_of_a_foreign_worker_stays_bytes(socket_path: str) -> None:
    answer = messages.Waited("a", "done", "ok", "", b"plain text", 1)
    with ScriptedBroker(socket_path, lambda _: answer), Client(socket_path) as client:
        assert client.wait("a").result == b"plain text"


def test_wait_may_take_longer_than_other_answers(socket_path: str) -> None:
    answered = messages.Waited("a", "leased", None, "", None, 1)

    def script(request: Request) -> Message:
        threading.Event().wait(0.1)
        return answered

    with ScriptedBroker(socket_path, script), Client(socket_path, timeout_s=0.02) as client:
        assert not client.wait("a", timeout_s=0.5).is_finished


def test_wait_that_is_repeated_asks_only_for_the_time_that_is_left(socket_path: str) -> None:
    answered = messages.Waited("a", "done", "ok", "", None, 1)

    def script(request: Request) -> Any:
        threading.Event().wait(0.05)
        return Close() if request.connection == 1 else answered

    with ScriptedBroker(socket_path, script) as broker, Client(socket_path) as client:
        client.wait("a", timeout_s=5)
        before, after = [message.timeout_ms for message in broker.messages(messages.Wait)]
    assert before == 5000
    assert 0 < after <= 4950


def test_long_wait_of_one_thread_holds_up_no_other(socket_path: str) -> None:
    finish = threading.Event()

    def script(request: Request) -> Message:
        if isinstance(request.message, messages.Wait):
            finish.wait(10)
            return messages.Waited("a", "done", "ok", "", None, 1)
        return reports(request)

    with ScriptedBroker(socket_path, script) as broker, Client(socket_path) as client:
        thread = threading.Thread(target=client.wait, args=("a",))
        thread.start()
        wait_until(lambda: broker.requests, "the wait has arrived")
        for _ in range(20):
            client.status()
        finish.set()
        thread.join(10)
        assert broker.connection_count == 2


@pytest.mark.slow
def test_threads_each_get_their_own_answers(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything), Client(socket_path) as client:
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


@pytest.mark.slow
def test_forked_children_open_their_own_connections(socket_path: str) -> None:
    with ScriptedBroker(socket_path, stores_everything) as broker, Client(socket_path) as client:
        client.enqueue("parent", id="p-0")
        children = [forked(partial(_enqueue_all, client, name)) for name in ("a", "b", "c", "d")]
        _enqueue_all(client, "p")
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        client.enqueue("parent", id="p-last")
        of_parent = {r.connection for r in broker.requests if r.message.id.startswith("p-")}
        of_children = {r.connection for r in broker.requests if not r.message.id.startswith("p-")}
        assert of_parent == {1}
        assert len(of_children) == 4


def _enqueue_all(client: Client, name: str) -> bool:
    return all(client.enqueue("k", id=f"{name}-{n}").id == f"{name}-{n}" for n in range(200))


def test_client_that_is_dropped_closes_its_connection(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports):
        Client(socket_path).status()


def test_listing_goes_on_until_the_last_page(socket_path: str) -> None:
    def script(request: Request) -> Message:
        if request.message.after == 0:
            return messages.JobsPage([{"id": "a"}, {"id": "b"}], 2)
        return messages.JobsPage([{"id": "c"}], 0)

    with ScriptedBroker(socket_path, script), Client(socket_path) as client:
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
def test_verb_asks_and_answers(socket_path: str, verb: Verb) -> None:
    call, answer, expected, asked = verb
    with ScriptedBroker(socket_path, lambda _: answer) as broker, Client(socket_path) as client:
        assert call(client) == expected
        assert broker.requests[0].message == asked
