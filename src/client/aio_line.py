"""One connection to the broker that the tasks of one event loop share: a `Line`.

Requests are pipelined: each task posts its own and waits for its own answer, in whatever order the
answers come. No task of ours runs beside the caller's, so a client needs no `async with`, belongs to
no nursery and leaves nothing behind.

Turns. At any time at most one task waits for the socket, and does for all what is to be done there:
reads, gives every answer to whom it belongs, writes what the socket did not take at once. The others
sleep. Who leaves, with its answer or cancelled, wakes one of those still waiting, which takes the
turn. A turn can be cancelled at any instant: nothing is read or written but in one step, without a
switch of tasks, so no byte is lost on the way.

A task that goes before its answer came (cancelled, or out of time) takes back what had not begun to
leave. Of a request that had begun the rest is still sent, because other frames follow it, and its
answer is dropped. Only if nobody else uses the line it is closed instead: a frame that is not whole
is never executed.

A line is over when the connection ends, or when it is retired: then nothing new is posted, and whoever
leaves last closes it. It belongs to the event loop and the process in which it was opened.
"""

import socket
from collections import deque
from itertools import islice
from typing import Any

import anyio

from ..proto import limits
from ..proto.errors import StokerError
from ..proto.messages import Message
from .connecting import absence, check_peer, why
from .request import ConnectionLost
from .session import Answered, Ended, Pushed, Refused, Session

ACCEPT_S = 0.01
"""Between two tries while the backlog is full."""

FRAMES_A_WRITE = 64
"""As many as `pipeline` gathers."""

FORGOTTEN_MAX = 256
"""With so many answers outstanding that nobody wants (of cancelled waits, say) a line is retired, and
the broker drops them when it is closed."""


class Inbox:
    """Where the answers of one task arrive."""

    __slots__ = ("answers", "lost", "outstanding", "woken")

    def __init__(self) -> None:
        self.answers: deque[Answered | Refused] = deque()
        self.outstanding: set[int] = set()
        """Numbers of the requests without an answer."""
        self.lost: ConnectionLost | None = None
        self.woken: anyio.Event | None = None

    def wake(self) -> None:
        """If its task sleeps."""
        if self.woken is not None:
            self.woken.set()


class Line:
    """See the module. Use `open_line`."""

    __slots__ = (
        "_begun",
        "_ended",
        "_inboxes",
        "_retired",
        "_session",
        "_sleeping",
        "_socket",
        "_turn",
        "_unsent",
        "_users",
    )

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._session = Session()
        self._users: set[Inbox] = set()
        self._inboxes: dict[int, Inbox] = {}
        """By the number of the request."""
        self._unsent: dict[int, bytes] = {}
        """What has not left whole, by number, in order."""
        self._begun: int | None = None
        """The first of these, if a part of it has left."""
        self._sleeping: dict[Inbox, None] = {}
        self._turn: anyio.CancelScope | None = None
        """Of the task that waits for the socket."""
        self._ended: tuple[str, StokerError | None] | None = None
        self._retired = False

    def __del__(self) -> None:
        # An event loop that ended without `aclose` leaves nobody else to do it.
        self.close()

    @property
    def is_usable(self) -> bool:
        """May a new request be posted here?"""
        return not self._retired and self._ended is None and self._session.forgotten_count < FORGOTTEN_MAX

    def close(self) -> None:
        """Close this process's descriptor. No `shutdown`: a child must not end its parent's connection."""
        self._socket.close()

    def retire(self) -> None:
        """Let nothing new be posted; close it as soon as nobody waits for an answer."""
        self._retired = True
        self._close_if_over()

    # --- a task's way through it ------------------------------------------------------------------

    def join(self) -> Inbox:
        """Become a user. `leave` must follow, whatever happens."""
        inbox = Inbox()
        self._users.add(inbox)
        return inbox

    def request(self, inbox: Inbox, message: Message) -> tuple[int, bytes]:
        """Number a request; it leaves with the next `flush`. LocalProtocolError if it cannot travel."""
        number, data = self._session.request(message)
        inbox.outstanding.add(number)
        self._inboxes[number] = inbox
        self._unsent[number] = data
        return number, data

    def flush(self) -> None:
        """Write what the socket takes. A loss is told by `wait_answer`."""
        if self._ended is not None:
            return self._lose()
        self._write()
        if self._unsent and self._turn is not None:
            # Whoever has the turn must wait for room as well.
            self._turn.cancel()

    async def wait_answer(self, inbox: Inbox) -> None:
        """Until there is an answer in this inbox; ConnectionLost once there will be none."""
        while not inbox.answers:
            if inbox.lost is not None:
                raise inbox.lost
            if self._turn is None:
                await self._take_turn()
            else:
                await self._sleep(inbox)

    def look(self, inbox: Inbox) -> None:
        """Read what is there by now, up to an answer in this inbox: of whoever was stopped time is up, and it has come
        all the same."""
        while not inbox.answers and self._turn is None and self._ended is None and self._read():
            pass

    def leave(self, inbox: Inbox) -> bool:
        """No longer a user. May anything that it posted, and got no answer to, still be executed?"""
        self._users.discard(inbox)
        may_be_executed = False
        for number in inbox.outstanding:
            del self._inboxes[number]
            if number not in self._unsent or (number == self._begun and self._users):
                self._session.forget(number)
                may_be_executed = True
            elif number != self._begun:
                del self._unsent[number]
                self._session.withdraw(number)
        self._close_if_over()
        if self._turn is None and self._sleeping:
            # The one that fell asleep last: taking it is cheapest, and it is likely to wait longest.
            sleeper, _ = self._sleeping.popitem()
            sleeper.wake()
        return may_be_executed

    def _close_if_over(self) -> None:
        if not self._users and (self._retired or self._ended is not None or self._begun is not None):
            self._retired = True
            self.close()

    async def _sleep(self, inbox: Inbox) -> None:
        inbox.woken = anyio.Event()
        self._sleeping[inbox] = None
        try:
            await inbox.woken.wait()
        finally:
            inbox.woken = None
            self._sleeping.pop(inbox, None)

    # --- the socket -------------------------------------------------------------------------------

    async def _take_turn(self) -> None:
        """Wait until there is something to be done at the socket, and do it. The only switch of tasks."""
        with anyio.CancelScope() as self._turn:
            try:
                if self._unsent:
                    await _wait_for_either(self._socket)
                else:
                    await anyio.wait_readable(self._socket)
            finally:
                self._turn = None
        if self._ended is None:
            self._write()
        if self._ended is None:
            self._read()

    def _write(self) -> None:
        while self._unsent:
            try:
                size = self._socket.sendmsg(
                    islice(self._unsent.values(), FRAMES_A_WRITE), [], socket.MSG_NOSIGNAL
                )
            except BlockingIOError:
                return
            except OSError as error:
                # Answers, and why the broker closed, may still be there to be read.
                while self._ended is None and self._read():
                    pass
                return self._end(why(error), None)
            self._sent(size)

    def _sent(self, size: int) -> None:
        for number, data in list(islice(self._unsent.items(), FRAMES_A_WRITE)):
            if size < len(data):
                if size:
                    self._begun = number
                    self._unsent[number] = data[size:]
                return
            size -= len(data)
            del self._unsent[number]
            self._begun = None

    def _read(self) -> bool:
        """One read and what follows from it; False if nothing is there."""
        try:
            data = self._socket.recv(limits.READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self._end(why(error), None)
            return False
        if data:
            self._session.receive_data(data)
        else:
            self._session.receive_eof()
        self._distribute()
        return True

    def _distribute(self) -> None:
        while (event := self._session.next_event()) is not None:
            if isinstance(event, Ended):
                return self._end(str(event.error or "it was closed"), event.error)
            # A session that was told of no pushes gives none.
            assert not isinstance(event, Pushed)
            inbox = self._inboxes.pop(event.request)
            inbox.outstanding.discard(event.request)
            inbox.answers.append(event)
            self._sleeping.pop(inbox, None)
            inbox.wake()

    def _end(self, reason: str, error: StokerError | None) -> None:
        if self._ended is None:
            self._ended = (reason, error)
            if self._turn is not None:
                self._turn.cancel()
        self._lose()

    def _lose(self) -> None:
        """Tell everybody who still waits."""
        assert self._ended is not None
        reason, error = self._ended
        for inbox in self._users:
            if inbox.lost is None:
                sent = any(number not in self._unsent for number in inbox.outstanding)
                inbox.lost = ConnectionLost(reason, sent=sent, error=error)
                inbox.wake()
        self._sleeping.clear()


async def open_line(path: str) -> Line:
    """Connect, however long a full backlog takes. BrokerUnreachableError; nothing was sent then."""
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        while not _is_connected(connecting, path):  # noqa: ASYNC110 - nobody tells when a backlog has room
            await anyio.sleep(ACCEPT_S)
        check_peer(connecting, path)
    except BaseException:
        connecting.close()
        raise
    return Line(connecting)


def _is_connected(connecting: socket.socket, path: str) -> bool:
    try:
        connecting.connect(path)
    except BlockingIOError:
        return False
    except OSError as error:
        raise absence(path, error) from None
    return True


async def _wait_for_either(sock: socket.socket) -> None:
    async def wait(condition: Any, scope: anyio.CancelScope) -> None:
        await condition(sock)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(wait, anyio.wait_readable, group.cancel_scope)
        group.start_soon(wait, anyio.wait_writable, group.cancel_scope)
