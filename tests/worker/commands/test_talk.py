"""What a worker and its sentinels say to each other."""

import os
import signal
import socket
from collections.abc import Iterator

import pytest
from support.forking import forked
from support.programs import a_program

from stoker.worker.commands import talk
from stoker.worker.commands.program import Program
from stoker.worker.commands.talk import STREAMS, Channel, End, Ended, Failed, Message, Started

FULL = Program(
    [b"sh", b"\xff\xfe", b""],
    b"/tmp/\xff",
    {b"PATH": b"/bin", b"\xff": b"\xfe"},
    0o077,
    {"cpu_s": 3, "memory_bytes": 2**40},
    300,
)

MESSAGES: list[Message] = [
    FULL,
    a_program("true"),
    End(0),
    Started(7),
    Failed(2, "ENOENT: nope"),
    Ended(3, None, 2**40, 17, 1, True),
    Ended(None, 9, 0, 0, 0, False),
]


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in pair:
        end.settimeout(10)
    yield Channel(pair[0]), Channel(pair[1])
    for end in pair:
        end.close()


def hear(channel: Channel) -> Message:
    while (message := channel.next()) is None:
        assert channel.receive()
    return message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_said_is_heard(ends: tuple[Channel, Channel], message: Message) -> None:
    ends[0].send(message)
    assert hear(ends[1]) == message


def test_messages_that_come_at_once_are_heard_one_by_one(ends: tuple[Channel, Channel]) -> None:
    ends[0].socket.sendall(b"".join(map(talk.encode, MESSAGES)))
    assert [hear(ends[1]) for _ in MESSAGES] == MESSAGES
    assert ends[1].next() is None


def test_message_that_comes_in_pieces_is_heard_when_it_is_whole(ends: tuple[Channel, Channel]) -> None:
    data = talk.encode(FULL)
    for at in range(len(data) - 1):
        ends[0].socket.sendall(data[at : at + 1])
        assert ends[1].receive()
        assert ends[1].next() is None
    ends[0].socket.sendall(data[-1:])
    assert hear(ends[1]) == FULL


def test_more_arguments_than_a_message_of_the_broker_may_list() -> None:
    program = a_program("true", *["x"] * 100_000)
    assert talk.decode(talk.encode(program)[4:]) == program


def test_descriptors_come_with_their_program_and_are_not_inherited(ends: tuple[Channel, Channel]) -> None:
    pipes = [os.pipe() for _ in range(STREAMS)]
    ends[0].send(FULL, descriptors=[reader for reader, _ in pipes])
    assert hear(ends[1]) == FULL
    came = ends[1].take_descriptors()
    assert [os.get_inheritable(fd) for fd in came] == [False] * STREAMS
    assert [os.fstat(fd).st_ino for fd in came] == [os.fstat(reader).st_ino for reader, _ in pipes]
    assert ends[1].take_descriptors() == []
    for fd in (*came, *(fd for pipe in pipes for fd in pipe)):
        os.close(fd)


def test_end_is_no_message(ends: tuple[Channel, Channel]) -> None:
    ends[0].socket.close()
    assert not ends[1].receive()
    assert ends[1].next() is None


def test_nothing_there_is_not_the_end(ends: tuple[Channel, Channel]) -> None:
    ends[1].socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        ends[1].receive()


@pytest.mark.parametrize("count", [0, STREAMS])
def test_saying_something_to_nobody_is_an_error_and_no_signal(
    ends: tuple[Channel, Channel], count: int
) -> None:
    ends[1].socket.close()

    def body() -> bool:
        # As in an app that ends quietly when nobody reads what it prints.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            ends[0].send(End(1), descriptors=[0] * count)
        except BrokenPipeError:
            return True
        return False

    assert os.waitpid(forked(body), 0)[1] == 0
