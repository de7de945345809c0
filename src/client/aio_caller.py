"""Calls of the asynchronous client: which line carries one, and what is done when it fails.

Each event loop has one line, opened by the first call in it, which all its tasks share. So a client
may be used in several loops, one after the other or in several threads at a time, and no connection
is ever used by another loop than the one that opened it. A loop that ended takes its line along, at
the latest when garbage is collected. A forked child starts with none: it closes its copies of the
parent's descriptors, which does not end the parent's connections.

What is done after a loss is decided in `request`, as for the blocking client. A line on which an answer
did not come in time is retired: whoever still waits there may go on waiting, new calls get a new one.
"""

import os
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from anyio.lowlevel import current_token

from ..proto.errors import BrokerUnreachableError, RefusedError
from ..proto.messages import Message
from .aio_line import Line, open_line
from .connecting import absence
from .request import ConnectionLost, Request, answer_within
from .session import Refused


class AsyncCaller:
    """See the module."""

    def __init__(self, path: str, *, timeout_s: float, retry_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.retry_s = retry_s
        self._was_connected = False
        # Nothing of a place may refer to its loop, or it would keep its own key alive.
        self._places: WeakKeyDictionary[object, _Place] = WeakKeyDictionary()
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the line of this event loop once its last call is answered. The next call opens one."""
        self._place().leave_line()

    async def take(self) -> Line:
        """The line of this event loop, for a new request. BrokerUnreachableError."""
        place = self._place()
        if place.line is not None and place.line.is_usable:
            return place.line
        with anyio.move_on_after(self.timeout_s):
            async with place.opening:
                # Another task may have opened it while this one waited for its turn.
                if place.line is None or not place.line.is_usable:
                    place.leave_line()
                    place.line = await open_line(self.path)
                    self._was_connected = True
                return place.line
        raise absence(self.path, BlockingIOError())

    def expects_broker(self) -> bool:
        """Has it been connected before? Then an absent broker is one that restarts."""
        return self._was_connected

    async def ask(self, message: Message) -> Any:
        """The answer to one request. RefusedError and the errors of `request`."""
        request = Request(message, path=self.path, timeout_s=self.timeout_s, retry_s=self.retry_s)
        while True:
            try:
                return await self._exchange(request.message)
            except ConnectionLost as lost:
                pause_s = request.after_loss(lost)
            except BrokerUnreachableError as error:
                pause_s = request.after_absence(error, expected=self.expects_broker())
            except RefusedError as error:
                pause_s = request.after_refusal(error)
                self.close()
            await anyio.sleep(pause_s)

    async def _exchange(self, message: Message) -> Any:
        line = await self.take()
        inbox = line.join()
        try:
            line.request(inbox, message)
            line.flush()
            with anyio.move_on_after(answer_within(message, self.timeout_s)):
                await line.wait_answer(inbox)
            line.look(inbox)
        finally:
            may_be_executed = line.leave(inbox)
        if not inbox.answers:
            line.retire()
            raise ConnectionLost("no answer in time", sent=may_be_executed, overdue=True)
        answer = inbox.answers.popleft()
        if isinstance(answer, Refused):
            raise answer.error
        return answer.message

    def _place(self) -> "_Place":
        if os.getpid() != self._pid:
            for place in self._places.values():
                if place.line is not None:
                    place.line.close()
            self._places = WeakKeyDictionary()
            self._pid = os.getpid()
        loop = current_token().native_token
        if loop not in self._places:
            self._places[loop] = _Place()
        return self._places[loop]


class _Place:
    """What one event loop has of a client."""

    __slots__ = ("line", "opening")

    def __init__(self) -> None:
        self.line: Line | None = None
        self.opening = anyio.Lock()
        """One connects for all: a broker with a full backlog is not asked by a thousand tasks at once."""

    def leave_line(self) -> None:
        if self.line is not None:
            self.line.retire()
            self.line = None
