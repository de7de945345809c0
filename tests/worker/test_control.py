"""What supervisor and zygote say to each other."""

import os
import socket
from collections.abc import Iterator

import pytest

from stoker.proto import limits
from stoker.worker import control
from stoker.worker.app import App
from stoker.worker.control import Exited, Failed, Files, Fork, Forked, Kinds, Message, Ready, Start, Unforked

MESSAGES: list[Message] = [
    Start("tasks:app", "/run/x.sock", b"\x00" * 16, "pool", queues=[["mail", 0]]),
    Fork("0123456789abcdef", "plain", 1),
    Kinds([{"kind": "send", "queue": "mail"}]),
    Files(["/srv/app/tasks.py"]),
    Ready(["thread one"], ["plain", "trio"], "5d41402a"),
    Failed("SyntaxError", "report"),
    Forked("0123456789abcdef", 77),
    Unforked("0123456789abcdef", "EAGAIN"),
    Exited("0123456789abcdef", None, 9, 1024, 5),
]

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_arrives_as_it_was_sent(pair: Pair, message: Message) -> None:
    control.send(pair[0], message)
    assert control.receive(pair[1]) == (message, None)


def test_packets_stay_apart(pair: Pair) -> None:
    for message in MESSAGES:
        control.send(pair[0], message)
    received = [control.receive(pair[1]) for _ in MESSAGES]
    assert received == [(message, None) for message in MESSAGES]


def test_descriptor_travels_with_its_message_and_closes_on_exec(pair: Pair) -> None:
    reader, writer = os.pipe()
    control.send(pair[0], Fork("0123456789abcdef", "plain", 1), writer)
    packet = control.receive(pair[1])
    assert packet is not None
    assert packet[1] is not None
    os.write(packet[1], b"x")
    assert os.read(reader, 1) == b"x"
    inherited = os.get_inheritable(packet[1])
    for fd in (reader, writer, packet[1]):
        os.close(fd)
    assert not inherited


def test_closed_end_is_told_apart_from_a_message(pair: Pair) -> None:
    pair[0].close()
    assert control.receive(pair[1]) is None


def test_packet_of_kinds_with_the_longest_names_fits(pair: Pair) -> None:
    app = App()
    for number in range(control.KINDS_A_PACKET):
        name = f"{number:0{limits.NAME_BYTES_MAX}}"
        app.job(name=name, queue=name, priority=-(10**6), time_limit_s=10**8, lease_s=10**4)(lambda: None)
    message = Kinds(app.kinds())
    assert len(control.pack(message)) < control.PACKET_BYTES_MAX
    control.send(pair[0], message)
    assert control.receive(pair[1]) == (message, None)
