"""One connection of the simulation: two directions, each in order, each with its own delay.

What a peer has written before it closed or died can still be read, and so can what the broker sent
before it crashed. Neither side learns of the other's end before it has read everything.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from stoker.proto.messages import Message

from .host import Host, Process

DELAY_MS_MAX = 20


class Peer(Protocol):
    """Whoever is at the other end of a connection to the broker."""

    process: Process

    def replied(self, asked: Message, answer: Message) -> None:
        """The answer to a request that was sent on the present connection."""
        ...

    def pushed(self, message: Message) -> None:
        """Something nobody asked for."""
        ...

    def cut_off(self) -> None:
        """The connection is at its end."""
        ...


class Line(Protocol):
    """A connection, as its peer has it."""

    def send(self, message: Message) -> None:
        """Send a request."""
        ...

    def close(self) -> None:
        """Close it."""
        ...

    @property
    def unanswered(self) -> list[Message]:
        """Requests that have no answer yet."""
        ...


class Wire:
    """See the module. `ready` is called when there is something for the broker to read."""

    def __init__(self, host: Host, peer: Peer, number: int, ready: Callable[["Wire"], None]) -> None:
        self._host = host
        self.peer = peer
        self.number = number
        self._ready = ready
        self.unread: deque[tuple[int, Message]] = deque()
        self.peer_is_open = True
        """The peer has neither closed nor died."""
        self.broker_is_open = True
        self._asked: dict[int, Message] = {}
        self._requests = 0
        self._arrives_ms = 0
        peer.process.on_death(self.close)

    def send(self, message: Message) -> None:
        """The peer sends a request."""
        if self.peer_is_open:
            self._requests += 1
            self._asked[self._requests] = message
            self.unread.append((self._requests, message))
            self._tell()

    @property
    def unanswered(self) -> list[Message]:
        """Requests that have no answer yet."""
        return list(self._asked.values())

    def close(self) -> None:
        """The peer closes, or its process ends."""
        if self.peer_is_open:
            self.peer_is_open = False
            self._tell()

    def _tell(self) -> None:
        self._host.heap.after(self._host.heap.between(0, DELAY_MS_MAX), lambda: self._ready(self))

    # --- the broker's side ----------------------------------------------------------------------------

    def answer(self, request: int, message: Message) -> None:
        """The broker answers a request."""
        self._arrive(lambda: self.peer.replied(self._asked.pop(request), message))

    def push(self, message: Message) -> None:
        """The broker sends what nobody asked for."""
        self._arrive(lambda: self.peer.pushed(message))

    def hang_up(self) -> None:
        """The broker closes, or ends."""
        if self.broker_is_open:
            self.broker_is_open = False
            self.unread.clear()
            self._arrive(self.peer.cut_off)

    def _arrive(self, action: Callable[[], None]) -> None:
        heap = self._host.heap
        self._arrives_ms = max(self._arrives_ms, heap.now_ms + heap.between(0, DELAY_MS_MAX))
        self.peer.process.after(self._arrives_ms - heap.now_ms, lambda: self._act_if_open(action))

    def _act_if_open(self, action: Callable[[], None]) -> None:
        if self.peer_is_open:
            action()
