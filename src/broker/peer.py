"""One peer: its socket, the bytes on their way out, and what the driver must remember of it.

Nothing here waits. Bytes leave by one direct `send` for all that a round has for the peer; only
what the socket does not take is kept, until epoll says that there is room. A frame is never cut:
when an unfinished one cannot be sent any more, the connection ends.

A peer is read from unless something holds it (`HOLD_...`). A peer that is held can still end: a hang-up
or the death of its process is seen at once, and what it had sent before is read to the last byte.
"""

import fcntl
import os
import signal
import socket
import termios
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

from ..proto import limits
from ..proto.connection import Connection, Event
from ..proto.model import Role
from .access import Credentials
from .poller import ERROR, HANGUP, IN, OUT, Poller

_DONT_WAIT = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


# Why a peer is not read from: bits of `Peer.holds`. Plain integers, because they are tested for every
# message.

HOLD_BACKLOG = 1
"""It is behind with taking answers, see `Peer.is_behind`."""

HOLD_LOOK_UP = 2
"""A message of it waits for the journal; what follows must not overtake it."""

HOLD_ANSWER = 4
"""Text mode takes one line at a time, and one is being answered."""

HOLD_BUDGET = 8
"""The open batch has gathered enough payloads."""

HOLD_OVER = 16
"""Nothing more will be read: end of file, or bytes that were no frame."""

HOLD_TURN = 32
"""It has said more than its share, or something costly, and waits for a turn."""

ANSWER_BYTES = 256
"""Counted for an answer of a request that is not known to have a large one. In memory an answer that is
decided takes about so much."""


class Peer:
    """See the module. `ready` and `process_ended` are called by the poller."""

    __slots__ = (
        "_interest",
        "_outgoing",
        "_outgoing_bytes",
        "_poller",
        "_rest_bytes_left",
        "_socket",
        "_unsent",
        "broken",
        "connection",
        "credentials",
        "exited",
        "finish_by_ms",
        "gone",
        "holds",
        "id",
        "introduced",
        "key",
        "last_words",
        "on_input",
        "over",
        "owes",
        "pidfd",
        "put_off",
        "queued",
        "reason",
        "reserved_bytes",
        "sent_bytes",
        "unanswered",
        "vain_count",
        "was_at_rest",
    )

    def __init__(
        self,
        id: int,
        connected: socket.socket,
        pidfd: int | None,
        credentials: Credentials,
        roles: frozenset[Role],
        poller: Poller,
        on_input: "Callable[[Peer], None]",
    ) -> None:
        self.id = id
        self._socket = connected
        self.pidfd = pidfd
        self.credentials = credentials
        self.connection = Connection(roles)
        self.on_input = on_input
        self.introduced = False
        """The core knows it."""
        self.key: tuple[Any, ...] | None = None
        """Of a worker its identity, of a supervisor its ticket."""
        self.queued: deque[Any] = deque()
        """Messages that wait for a look-up, and those behind them."""
        self.put_off: Event | None = None
        """What waits for the next turn, a costly request for its first: before all that is still in the connection."""
        self.unanswered = 0
        self.owes: dict[int, int] = {}
        """Of the unanswered requests those whose answer may be large or late, with what is reserved for it."""
        self.reserved_bytes = 0
        """The sum of those."""
        self.over = False
        """The connection has said its last event; what is unanswered may still be answered."""
        self.gone = False
        """Nobody is left to answer to: the other end is closed in both directions, or its process dead."""
        self.was_at_rest = True
        """It had been heard to the end, and has had no turn since."""
        self.vain_count = 0
        """Requests heard since then of which nothing could come."""
        self.exited = False
        """The process that connected is dead."""
        self.broken = False
        """The last bytes sent may have been cut, or it stopped reading altogether."""
        self.finish_by_ms = 0
        """After an error: when to close even if something is unanswered. 0: no such time."""
        self.last_words = b""
        """The error that ends the connection. It leaves behind all answers."""
        self.sent_bytes = 0
        """All that its socket has taken."""
        self.reason = ""
        self._poller = poller
        self._rest_bytes_left: int | None = None
        self.holds = 0
        self._interest = IN
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._unsent = b""

    def watch(self) -> None:
        """Begin: be told of input and of the end of the process."""
        self._poller.add(self._socket.fileno(), self._interest, self.ready)
        if self.pidfd is not None:
            self._poller.add(self.pidfd, IN, self.process_ended)

    # --- in ------------------------------------------------------------------------------------------

    def ready(self, flags: int) -> None:
        """The socket has something to read, room to write, or ended."""
        if flags & OUT and (self.flush() or self.broken):
            self.on_input(self)
            if self._socket.fileno() < 0:
                return
        if flags & (HANGUP | ERROR):
            self.lose()
        elif flags & IN and not self.holds:
            self._read()
            self.on_input(self)

    def lose(self) -> None:
        """Nobody can be answered any more. What was said before counts to the last byte."""
        self.count_rest()
        self.gone = True
        self._poller.remove(self._socket.fileno())
        self.on_input(self)

    def process_ended(self, _: int) -> None:
        """The pidfd fired. A whole ack that was written before the death counts: it is read now."""
        assert self.pidfd is not None
        self._poller.remove(self.pidfd)
        self.exited = True
        self.lose()

    def count_rest(self) -> None:
        """What is in the socket now is all that `read_rest` will read, and the end of file behind it.

        A child that inherited the connection of a dead process may write without end.
        """
        if self._rest_bytes_left is None and self._socket.fileno() >= 0:
            self._rest_bytes_left = 1 + _unread_bytes(self._socket)

    def read_rest(self) -> bool:
        """One read of what was there then, whatever holds the peer; whether there was anything."""
        if self._rest_bytes_left is None or self._rest_bytes_left <= 0:
            return False
        count = self._read()
        self._rest_bytes_left -= count
        return count > 0

    def _read(self) -> int:
        """One read; how many bytes that were."""
        if self.holds & HOLD_OVER:
            return 0
        try:
            data = self._socket.recv(limits.READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self.connection.receive_data(data)
        else:
            self.connection.receive_eof()
            self.hold(HOLD_OVER)
        return len(data)

    def hold(self, reason: int) -> None:
        """Do not read from it for now."""
        if not self.holds & reason:
            self.holds |= reason
            self._update_interest()

    def unhold(self, reason: int) -> None:
        """That reason is over."""
        if self.holds & reason:
            self.holds &= ~reason
            self._update_interest()

    def _update_interest(self) -> None:
        interest = (0 if self.holds else IN) | (OUT if self._unsent else 0)
        if interest != self._interest and not self.gone:
            self._poller.change(self._socket.fileno(), interest)
        self._interest = interest

    # --- out -----------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Add bytes for the next `flush`."""
        if not self.is_reachable:
            return
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > limits.OUTGOING_BYTES_MAX:
            self.broken = True
            self.reason = "it has stopped reading"

    @property
    def is_reachable(self) -> bool:
        """What is sent to it can still arrive."""
        return not (self.gone or self.broken)

    @property
    def unread_bytes(self) -> int:
        """What its socket has not taken; after `flush`, what it has not read."""
        return self._outgoing_bytes

    @property
    def is_flushed(self) -> bool:
        """Nothing is on its way out, or nothing can be."""
        return self._outgoing_bytes == 0 or not self.is_reachable

    @property
    def is_behind(self) -> bool:
        """More answers wait for it than it should have outstanding, made or not."""
        ordinary = self.unanswered - len(self.owes)
        waiting = self._outgoing_bytes + self.reserved_bytes + ANSWER_BYTES * ordinary
        return waiting > limits.OUTGOING_BYTES_PAUSE

    def flush(self) -> bool:
        """Send what the socket takes now; whether the peer has caught up by that."""
        if self._outgoing and self.is_reachable:
            data = b"".join((self._unsent, *self._outgoing))
            self._outgoing.clear()
            self._unsent = data[self._sent_of(data) :]
        elif self._unsent:
            self._unsent = self._unsent[self._sent_of(self._unsent) :]
        self._outgoing_bytes = len(self._unsent)
        was_behind = self.holds & HOLD_BACKLOG
        self.holds = self.holds | HOLD_BACKLOG if self.is_behind else self.holds & ~HOLD_BACKLOG
        self._update_interest()
        return bool(was_behind and not self.holds & HOLD_BACKLOG)

    def _sent_of(self, data: bytes) -> int:
        try:
            sent = self._socket.send(data, _DONT_WAIT)
        except BlockingIOError:
            return 0
        except OSError:
            # The hang-up will be reported by epoll, after what is still to be read.
            self.broken = True
            return 0
        self.sent_bytes += sent
        return sent

    # --- end -----------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the process behind the connection, and no other: OSError if that is not allowed."""
        if self.pidfd is None:
            raise ProcessLookupError("no pidfd of this peer")
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close_socket(self) -> None:
        """Close the connection; the process stays watched."""
        if self._socket.fileno() >= 0:
            self._poller.remove(self._socket.fileno())
            self.gone = True
            self._socket.close()

    def close(self) -> None:
        """Close everything."""
        self.close_socket()
        if self.pidfd is not None:
            self._poller.remove(self.pidfd)
            os.close(self.pidfd)
            self.pidfd = None


def _unread_bytes(connected: socket.socket) -> int:
    count = array("i", [0])
    fcntl.ioctl(connected, termios.FIONREAD, count)
    return count[0]
