"""Calls of the blocking client: which connection carries one, and what is done when it fails.

Connections. A call takes an idle connection or opens one, and has it for itself until its answer is
there. So a thread in a long `wait` holds up nobody, no two threads can read each other's answers,
and a program that calls from one thread has one connection. A forked child starts with none: it
closes its copies of the parent's descriptors, which does not end the parent's connections.

What is done after a loss is decided in `request`. A connection whose answer did not come in time is
dropped: its late answer reaches nobody.
"""

import os
from time import sleep
from typing import Any

from ..proto.errors import BrokerUnreachableError, RefusedError
from ..proto.messages import Message
from .request import ConnectionLost, Request, answer_within
from .wire import Wire

IDLE_MAX = 8
"""Idle connections kept; what a burst of threads opened beyond them is closed again."""


class Caller:
    """See the module. May be used by any number of threads."""

    def __init__(self, path: str, *, timeout_s: float, retry_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.retry_s = retry_s
        self._was_connected = False
        # No lock: append and pop of a list are atomic, and nothing else is shared.
        self._idle: list[Wire] = []
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def take(self) -> Wire:
        """A connection for the caller alone; to be given back, or closed. BrokerUnreachableError."""
        if os.getpid() != self._pid:
            self.close()
            self._pid = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            wire = Wire(self.path, self.timeout_s)
        self._was_connected = True
        return wire

    def give(self, wire: Wire) -> None:
        """Return a connection on which nothing is outstanding."""
        if len(self._idle) < IDLE_MAX:
            self._idle.append(wire)
        else:
            wire.close()

    def expects_broker(self) -> bool:
        """Has it been connected before? Then an absent broker is one that restarts."""
        return self._was_connected

    def ask(self, message: Message) -> Any:
        """The answer to one request. RefusedError and the errors of `request`."""
        request = Request(message, path=self.path, timeout_s=self.timeout_s, retry_s=self.retry_s)
        while True:
            try:
                return self._exchange(request.message)
            except ConnectionLost as lost:
                self.close()
                pause_s = request.after_loss(lost)
            except BrokerUnreachableError as error:
                pause_s = request.after_absence(error, expected=self.expects_broker())
            except RefusedError as error:
                pause_s = request.after_refusal(error)
                self.close()
            sleep(pause_s)

    def _exchange(self, message: Message) -> Any:
        wire = self.take()
        try:
            answer = wire.exchange(message, answer_within(message, self.timeout_s))
        except RefusedError:
            self.give(wire)
            raise
        except BaseException:
            # Also Ctrl-C, or an exception a signal handler raised: an answer may still be on its way.
            wire.close()
            raise
        self.give(wire)
        return answer
