"""One connection: whether a request had left, who may be at the other end, whose it is."""

import contextlib
import itertools
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from support.forking import forked
from support.scripted_broker import Request, ScriptedBroker, answer_frame

from stoker.client import wire as wire_module
from stoker.client.request import ConnectionLost
from stoker.client.session import Answered
from stoker.client.wire import Wire
from stoker.proto import limits, messages
from stoker.proto.errors import BrokerUnreachableError, LocalProtocolError
from stoker.proto.messages import Message

NOBODY = 12345


def reports(request: Request) -> Message:
    return messages.StatusReport({"connection": request.connection})


@contextmanager
def listening(path: str) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        yield listener


def test_path_through_a_file_is_unreachable(socket_path: str) -> None:
    with listening(socket_path), pytest.raises(BrokerUnreachableError, match="Not a directory"):
        Wire(f"{socket_path}/below", 1)


def test_request_to_a_closed_connection_has_not_left(socket_path: str) -> None:
    with listening(socket_path) as listener:
        wire = Wire(socket_path, 1)
        listener.accept()[0].close()
        with pytest.raises(ConnectionLost) as lost:
            wire.exchange(messages.Status(), 1)
        assert not lost.value.sent
        wire.close()


def test_request_that_does_not_fit_has_not_left(socket_path: str) -> None:
    with listening(socket_path):
        wire = Wire(socket_path, 1)
        with pytest.raises(ConnectionLost, match="does not read") as lost:
            wire.exchange(messages.Enqueue("a", "k", b"x" * 2**20), 0.05)
        assert lost.value.overdue
        assert not lost.value.sent
        wire.close()


def test_request_without_an_answer_has_left(socket_path: str) -> None:
    with listening(socket_path) as listener:
        wire = Wire(socket_path, 1)
        peer = listener.accept()[0]
        wire.send(messages.Status(), 1)
        peer.close()
        with pytest.raises(ConnectionLost) as lost:
            wire.receive(1)
        assert lost.value.sent
        assert not lost.value.overdue
        wire.close()


def test_answer_that_has_come_counts_although_time_is_up(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for whoever was stopped meanwhile. It is longer than one read."""
    clock = itertools.count(0, 100)
    monkeypatch.setattr(wire_module, "monotonic", lambda: next(clock))
    report = messages.StatusReport({"text": "x" * (limits.READ_BYTES + 10)})
    with listening(socket_path) as listener, contextlib.closing(Wire(socket_path, 1)) as wire:
        peer = listener.accept()[0]
        number = wire.send(messages.Status(), 1)
        with peer:
            peer.sendall(answer_frame(number, report))
            answer = wire.receive(5)
    assert isinstance(answer, Answered)
    assert answer.message == report


def test_rest_of_an_answer_that_does_not_come_is_not_waited_for(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 100)
    monkeypatch.setattr(wire_module, "monotonic", lambda: next(clock))
    with listening(socket_path) as listener, contextlib.closing(Wire(socket_path, 1)) as wire:
        peer = listener.accept()[0]
        wire.send(messages.Status(), 1)
        with peer:
            peer.sendall(b"\0")
            with pytest.raises(ConnectionLost) as lost:
                wire.receive(5)
    assert lost.value.overdue


@pytest.mark.slow
def test_connection_is_refused_in_a_forked_child_before_a_byte_is_written(socket_path: str) -> None:
    with ScriptedBroker(socket_path, reports) as broker:
        wire = Wire(socket_path, 1)
        assert os.waitpid(forked(lambda: _is_refused(wire)), 0)[1] == 0
        assert wire.exchange(messages.Status(), 1).status == {"connection": 1}
        assert len(broker.requests) == 1
        wire.close()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_listener_of_another_user_is_not_trusted(socket_path: str) -> None:
    refused = pytest.raises(BrokerUnreachableError, match=f"uid {NOBODY}.*not trusted")
    with _listener_of(NOBODY, socket_path), refused:
        Wire(socket_path, 1)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")
def test_listener_of_the_owner_of_the_directory_is_trusted(socket_path: str) -> None:
    os.chown(os.path.dirname(socket_path), NOBODY, NOBODY)
    with _listener_of(NOBODY, socket_path):
        Wire(socket_path, 1).close()


def _is_refused(wire: Wire) -> bool:
    try:
        wire.exchange(messages.Status(), 1)
    except LocalProtocolError as error:
        return "belongs to process" in str(error)
    return False


@contextmanager
def _listener_of(uid: int, path: str) -> Generator[None]:
    """Listens in a child that has given up root: the kernel keeps the uid of whoever calls listen."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)

        def listen() -> bool:
            os.setresuid(uid, uid, uid)
            listener.listen()
            return True

        assert os.waitpid(forked(listen), 0)[1] == 0
        yield
