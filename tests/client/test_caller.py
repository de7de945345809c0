"""Connections of the caller: as many as are used at a time, few of them kept, errors told apart."""

import threading

import pytest
from support.scripted_broker import Close, Request, ScriptedBroker
from support.waiting import wait_until

from stoker.client.caller import IDLE_MAX, Caller
from stoker.proto import messages
from stoker.proto.errors import BrokerUnreachableError, OutcomeUnknown
from stoker.proto.messages import Message


def caller(path: str, *, retry_s: float = 0) -> Caller:
    return Caller(path, timeout_s=5, retry_s=retry_s)


def reports(request: Request) -> Message:
    return messages.StatusReport({"connection": request.connection})


def test_few_of_many_connections_are_kept(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker:
        calls = caller(socket_path)
        for wire in [calls.take() for _ in range(IDLE_MAX + 3)]:
            calls.give(wire)
        wait_until(lambda: broker.open_count == IDLE_MAX, "the others are closed")
        calls.close()
        wait_until(lambda: broker.open_count == 0, "all are closed")


def test_connection_is_reused_before_another_is_opened(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker:
        calls = caller(socket_path)
        calls.give(calls.take())
        calls.give(calls.take())
        calls.ask(messages.Status())
        assert broker.connection_count == 1
        calls.close()


def test_question_without_patience_is_unreachable_not_unknown(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()), pytest.raises(BrokerUnreachableError, match="lost"):
        caller(socket_path).ask(messages.Status())


def test_enqueue_is_unknown_when_no_broker_comes_back(socket_path: str) -> None:
    gone = threading.Event()

    def script(_: Request) -> Close:
        gone.set()
        return Close()

    broker = ScriptedBroker(socket_path, script)
    calls = caller(socket_path, retry_s=0.2)

    def end() -> None:
        gone.wait(5)
        broker.close()

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(OutcomeUnknown) as unknown:
        calls.ask(messages.Enqueue("order-1", "k", b""))
    ending.join(5)
    assert unknown.value.job_id == "order-1"
