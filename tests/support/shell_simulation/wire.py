"""One connection of a simulated peer to a real listener: real sockets, frames and sessions.

As in the simulation, what a peer sends and gets has its delay on the way, and what it wrote before it
closed or died can still be read. Its process is not real, so its death is told by an event descriptor
in the place of a pidfd.
"""

import os
import socket
from collections import deque
from collections.abc import Callable

from stoker.broker.poller import IN, Poller
from stoker.client.session import Answered, Ended, Event, Pushed, Refused, Session
from stoker.proto import limits, messages, work
from stoker.proto.messages import Message, Refusal

from ..simulation.host import Host
from ..simulation.wire import DELAY_MS_MAX, Peer

OPS = {**messages.OPS, **work.OPS}
PUSHES = {number: message for message, (number, answer) in work.OPS.items() if answer is None}

MISTAKES = frozenset({"bad_message", "bad_frame", "forbidden", "unknown_op", "internal"})
"""What no peer of a world is ever told: then it would not be what it stands for."""

FULL_RETRY_MS = 5
"""So long after the socket was full a peer tries again."""

WATCHED_MS = 1000
"""So long after the end of a connection its process may still be watched by the broker."""


class SocketWire:
    """See the module. `pushed` is told of each push the moment it leaves the broker."""

    def __init__(
        self,
        host: Host,
        peer: Peer,
        connected: socket.socket,
        readers: Poller,
        pushed: Callable[["SocketWire", Message], None],
    ) -> None:
        self._host = host
        self.peer = peer
        self._socket = connected
        self._readers = readers
        self._pushed = pushed
        self._session = Session(OPS, PUSHES)
        self._asked: dict[int, Message] = {}
        self._unsent: deque[bytes] = deque()
        self._arrives_ms = 0
        self._reads = True
        self.is_open = True
        self.death: int = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable once the peer's process has died; -1 when nobody can be watching any more."""
        readers.add(connected.fileno(), IN, self._readable)
        peer.process.on_death(self._died)

    # --- the peer's side ------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send a request: its bytes leave after a while, in order."""
        if self.is_open:
            number, data = self._session.request(message)
            self._asked[number] = message
            self._unsent.append(data)
            self._soon(self._write)

    @property
    def unanswered(self) -> list[Message]:
        """Requests that have no answer yet."""
        return list(self._asked.values())

    def close(self) -> None:
        """The peer closes, or its process ends. What it had sent is written first."""
        if self.is_open:
            self.is_open = False
            self._soon(self._finish)

    def _soon(self, action: Callable[[], None]) -> None:
        self._host.heap.after(self._host.heap.between(0, DELAY_MS_MAX), action)

    def _died(self) -> None:
        if self.is_open:
            self.close()
        elif self._socket.fileno() < 0 <= self.death:
            os.eventfd_write(self.death, 1)

    def _write(self) -> None:
        while self._unsent and self._socket.fileno() >= 0:
            try:
                sent = self._socket.send(self._unsent[0], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._host.heap.after(FULL_RETRY_MS, self._write)
                return
            except OSError:
                # The broker has gone; the end of file says so.
                self._unsent.clear()
                return
            data = self._unsent.popleft()[sent:]
            if data:
                self._unsent.appendleft(data)

    def _finish(self) -> None:
        self._write()
        self._stop_reading()
        self._socket.close()
        if self.peer.process.alive:
            self._host.heap.after(WATCHED_MS, self.dispose)
        else:
            # A dying process closes its sockets a moment before its pidfd fires.
            self._host.heap.after(self._host.heap.between(0, 5), self._tell_death)

    def _tell_death(self) -> None:
        if self.death >= 0:
            os.eventfd_write(self.death, 1)
        self._host.heap.after(WATCHED_MS, self.dispose)

    def dispose(self) -> None:
        """Let go of every descriptor."""
        self._stop_reading()
        self._socket.close()
        if self.death >= 0:
            os.close(self.death)
            self.death = -1

    # --- what comes from the broker -------------------------------------------------------------------------

    def _stop_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._readers.remove(self._socket.fileno())

    def _readable(self, _: int) -> None:
        try:
            data = self._socket.recv(limits.READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if data:
            self._session.receive_data(data)
        else:
            self._session.receive_eof()
        while (event := self._session.next_event()) is not None:
            self._take(event)
            if isinstance(event, Ended):
                self._stop_reading()
                return

    def _take(self, event: Event) -> None:
        peer = self.peer
        if isinstance(event, Ended):
            self._arrive(peer.cut_off)
        elif isinstance(event, Pushed):
            message = event.message
            self._pushed(self, message)
            self._arrive(lambda: peer.pushed(message))
        else:
            request = event.request
            answer = event.message if isinstance(event, Answered) else self._refusal(event)
            self._arrive(lambda: peer.replied(self._asked.pop(request), answer))

    def _refusal(self, event: Refused) -> Refusal:
        error = event.error
        assert error.code not in MISTAKES, f"{self.peer.process.name} was told {error}"
        return Refusal(error.code, str(error))

    def _arrive(self, action: Callable[[], None]) -> None:
        heap = self._host.heap
        self._arrives_ms = max(self._arrives_ms, heap.now_ms + heap.between(0, DELAY_MS_MAX))
        self.peer.process.after(self._arrives_ms - heap.now_ms, lambda: self._act_if_open(action))

    def _act_if_open(self, action: Callable[[], None]) -> None:
        if self.is_open:
            action()
