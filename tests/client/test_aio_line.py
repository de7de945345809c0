"""One connection of many tasks: turns, answers that find their task, cancelled and unfinished requests."""

import socket
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from support.scripted_broker import answer_frame

from stoker.client.aio_line import FORGOTTEN_MAX, Inbox, Line
from stoker.client.request import ConnectionLost
from stoker.client.session import Answered, Refused
from stoker.proto import codec, messages
from stoker.proto.errors import RefusedError
from stoker.proto.frames import FrameReader
from stoker.proto.messages import Message

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]

BUFFER_BYTES = 4096
BIG = messages.Enqueue("big", "k", bytes(20 * BUFFER_BYTES))
"""Does not fit what the socket takes at once."""

STATUS = messages.Status()


class Peer:
    """The broker's end of a line."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(5)
        self._socket = end
        self._reader = FrameReader()

    def say(self, number: int, message: Message) -> None:
        self.write(answer_frame(number, message))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, caller: "Caller") -> None:
        """What belongs to its request, so that `said` is its number."""
        if isinstance(caller.message, messages.Enqueue):
            self.say(caller.number, messages.Enqueued("big", caller.number))
        else:
            self.say(caller.number, status_of(caller))

    def is_at_end(self) -> bool:
        return self._socket.recv(1) == b""

    def read(self) -> list[list[Any]]:
        """One read; the frames that are whole by now."""
        data = self._socket.recv(65536)
        if not data:
            raise EOFError
        self._reader.feed(data)
        frames: list[list[Any]] = []
        while (body := self._reader.next_frame()) is not None:
            frames.append(codec.decode(body))
        return frames

    async def read_until(self, number: int) -> list[int]:
        """Numbers of the requests up to this one."""
        numbers: list[int] = []
        with anyio.fail_after(5):
            while number not in numbers:
                await anyio.wait_readable(self._socket)
                numbers += [frame[1] for frame in self.read()]
        return numbers

    def close(self) -> None:
        self._socket.close()


class Caller:
    """A task's use of a line: what it got, or how it ended."""

    def __init__(self, line: Line, message: Message = STATUS) -> None:
        self.line = line
        self.message = message
        self.number = -1
        self.answer: Answered | Refused | None = None
        self.lost: ConnectionLost | None = None
        self.may_be_executed: bool | None = None
        self.scope = anyio.CancelScope()
        self.posted = anyio.Event()
        self.ended = anyio.Event()

    async def cancel(self) -> None:
        self.scope.cancel()
        await self.ended.wait()

    async def run(self) -> None:
        inbox = self.line.join()
        with self.scope:
            try:
                self.number, _ = self.line.request(inbox, self.message)
                self.line.flush()
                self.posted.set()
                await self.line.wait_answer(inbox)
                self.answer = inbox.answers.popleft()
            except ConnectionLost as lost:
                self.lost = lost
            finally:
                self.may_be_executed = self.line.leave(inbox)
        self.ended.set()


async def begin(group: TaskGroup, caller: Caller) -> None:
    """Start it, and go on once it waits for its answer."""
    group.start_soon(caller.run)
    await caller.posted.wait()


@pytest.fixture
def pair() -> Iterator[tuple[Line, Peer]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    line, peer = Line(ours), Peer(theirs)
    yield line, peer
    peer.close()
    line.close()


def status_of(caller: Caller) -> messages.StatusReport:
    return messages.StatusReport({"number": caller.number})


def said(caller: Caller) -> int:
    """The number that its answer carries."""
    assert isinstance(caller.answer, Answered)
    message: Any = caller.answer.message
    number: int = message.number if isinstance(message, messages.Enqueued) else message.status["number"]
    return number


async def test_answers_in_another_order_find_their_tasks(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    callers = [Caller(line) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for caller in callers:
            await begin(group, caller)
        for caller in reversed(callers):
            peer.answer(caller)
    assert [said(caller) for caller in callers] == [caller.number for caller in callers]


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_cancelled_task_loses_nobody_elses_answer(pair: tuple[Line, Peer], cancelled: int) -> None:
    line, peer = pair
    callers = [Caller(line) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for caller in callers:
            await begin(group, caller)
        await callers[cancelled].cancel()
        for caller in callers:
            peer.answer(caller)
    gone = callers.pop(cancelled)
    assert [said(caller) for caller in callers] == [caller.number for caller in callers]
    assert (gone.answer, gone.may_be_executed) == (None, True)


async def test_late_answer_of_a_cancelled_task_reaches_nobody(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    gone, next_one = Caller(line), Caller(line)
    async with anyio.create_task_group() as group:
        await begin(group, gone)
        await gone.cancel()
        await begin(group, next_one)
        peer.answer(gone)
        peer.answer(next_one)
    assert said(next_one) == next_one.number


async def test_answer_that_came_in_pieces_survives_a_change_of_turns(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    first, second, third = Caller(line), Caller(line), Caller(line)
    async with anyio.create_task_group() as group:
        for caller in (first, second, third):
            await begin(group, caller)
        data = [answer_frame(each.number, status_of(each)) for each in (third, second)]
        peer.write(data[0] + data[1][:7])
        await third.ended.wait()
        await first.cancel()
        peer.write(data[1][7:])
    assert said(second) == second.number


async def test_request_that_had_not_begun_to_leave_is_taken_back(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    big, gone, last = Caller(line, BIG), Caller(line), Caller(line)
    async with anyio.create_task_group() as group:
        for caller in (big, gone, last):
            await begin(group, caller)
        await gone.cancel()
        assert await peer.read_until(last.number) == [big.number, last.number]
        for caller in (big, last):
            peer.answer(caller)
    assert gone.may_be_executed is False
    assert said(last) == last.number


async def test_request_that_had_begun_to_leave_is_finished_for_those_behind_it(
    pair: tuple[Line, Peer],
) -> None:
    line, peer = pair
    gone, last = Caller(line, BIG), Caller(line)
    async with anyio.create_task_group() as group:
        for caller in (gone, last):
            await begin(group, caller)
        await gone.cancel()
        assert await peer.read_until(last.number) == [gone.number, last.number]
        peer.answer(last)
    assert gone.may_be_executed is True
    assert said(last) == last.number


async def test_unfinished_request_that_nobody_is_left_behind_closes_the_line(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    gone = Caller(line, BIG)
    async with anyio.create_task_group() as group:
        await begin(group, gone)
        gone.scope.cancel()
    assert gone.may_be_executed is False
    assert not line.is_usable
    with pytest.raises(EOFError):
        while peer.read() == []:
            continue


async def test_reading_goes_on_while_the_socket_is_full(pair: tuple[Line, Peer]) -> None:
    """A broker does not read from a peer that does not read, so a writer that waited alone would for ever."""
    line, peer = pair
    waiting, big = Caller(line), Caller(line, BIG)
    async with anyio.create_task_group() as group:
        for caller in (big, waiting):
            await begin(group, caller)
        with anyio.fail_after(5):
            await anyio.wait_all_tasks_blocked()
        peer.answer(waiting)
        await waiting.ended.wait()
        await peer.read_until(big.number)
        peer.answer(big)
    assert said(big) == big.number


async def test_task_that_only_reads_makes_room_for_what_another_could_not_write(
    pair: tuple[Line, Peer],
) -> None:
    line, peer = pair
    first, big = Caller(line), Caller(line, BIG)
    async with anyio.create_task_group() as group:
        for caller in (first, big):
            await begin(group, caller)
        assert await peer.read_until(big.number) == [first.number, big.number]
        for caller in (first, big):
            peer.answer(caller)
    assert said(big) == big.number


async def test_end_tells_everybody_whether_their_request_had_left(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    whole, big, unsent = Caller(line), Caller(line, BIG), Caller(line)
    async with anyio.create_task_group() as group:
        for caller in (whole, big, unsent):
            await begin(group, caller)
        peer.read()
        peer.close()
    assert [caller.lost is not None and caller.lost.sent for caller in (whole, big, unsent)] == [
        True,
        False,
        False,
    ]


async def test_answers_before_the_end_still_arrive(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    answered, lost = Caller(line), Caller(line)
    async with anyio.create_task_group() as group:
        for caller in (answered, lost):
            await begin(group, caller)
        peer.answer(answered)
        peer.read()
        peer.close()
    assert said(answered) == answered.number
    assert lost.lost is not None and lost.lost.sent


async def test_last_words_of_a_broker_are_found_by_the_write_that_failed(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    peer.say(0, messages.Refusal("too_many_connections", "256 is the limit"))
    peer.close()
    caller = Caller(line)
    await caller.run()
    assert caller.lost is not None and not caller.lost.sent
    assert isinstance(caller.lost.error, RefusedError)


async def test_request_on_a_line_that_ended_has_not_left(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    peer.close()
    for _ in range(2):
        caller = Caller(line)
        await caller.run()
        assert caller.lost is not None and not caller.lost.sent
    assert not line.is_usable


async def test_retired_line_lives_until_its_last_user_leaves(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    caller = Caller(line)
    async with anyio.create_task_group() as group:
        await begin(group, caller)
        line.retire()
        assert not line.is_usable
        peer.read()
        peer.answer(caller)
    assert said(caller) == caller.number
    assert peer.is_at_end()


async def test_line_with_many_unwanted_answers_takes_no_new_requests(pair: tuple[Line, Peer]) -> None:
    line, peer = pair
    for _ in range(FORGOTTEN_MAX):
        assert line.is_usable
        inbox: Inbox = line.join()
        line.request(inbox, STATUS)
        line.flush()
        line.leave(inbox)
        peer.read()
    assert not line.is_usable
