"""Who is ready: one epoll descriptor for all sockets and pidfds of the broker.

Trio watches that one descriptor instead of each peer. So a round of the loop handles every peer
that is ready, in one task, and everything they sent shares a commit; a task a peer would cost a
switch and two system calls for each message. Level-triggered: what a handler leaves unread comes up
again in the next round, which is also what makes the rounds fair.

Handlers are called with the epoll flags and must bear being called for nothing.
"""

import select
from collections.abc import Callable

IN, OUT, HANGUP, ERROR = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP, select.EPOLLERR

EVENTS_MAX = 16
"""Handled at a time. What was handled comes after all others that are ready, so that nobody is forgotten
if a round ends with some of them."""

LOOKS_MAX = 4
"""Of one `gather`, when each of them has shown all that was ready."""

FULL_LOOKS_MAX = 64
"""Of one `gather`, when there were always more: in any case it comes to an end."""

Handler = Callable[[int], None]


class Poller:
    """Descriptors with their handlers."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._ready: list[tuple[int, int]] = []

    def fileno(self) -> int:
        """Readable while any registered descriptor is ready."""
        return self._epoll.fileno()

    def add(self, descriptor: int, flags: int, handler: Handler) -> None:
        """Watch a descriptor."""
        self._epoll.register(descriptor, flags)
        self._handlers[descriptor] = handler

    def change(self, descriptor: int, flags: int) -> None:
        """Watch it for something else; `HANGUP` and `ERROR` are always reported."""
        self._epoll.modify(descriptor, flags)

    def remove(self, descriptor: int) -> None:
        """Watch it no longer. Before it is closed."""
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def look(self) -> bool:
        """Whether anything is ready now; `poll` will handle what was seen."""
        if not self._ready:
            self._ready = self._epoll.poll(0, EVENTS_MAX)
        return bool(self._ready)

    def poll(self) -> int:
        """Handle some of what is ready now, without waiting; how many that were.

        A handler may remove others that are ready too. It must not add one: a number that was freed
        in this round would be taken for its old bearer. (The listener adds peers, and is called
        after the round.)
        """
        self.look()
        ready, self._ready = self._ready, []
        handlers = self._handlers
        for descriptor, flags in ready:
            handler = handlers.get(descriptor)
            if handler is not None:
                handler(flags)
        return len(ready)

    def gather(self, has_room: Callable[[], bool]) -> None:
        """Handle all that is ready while there is room.

        Who became ready meanwhile shares the commit, which costs far more than another look.
        """
        looks_left = LOOKS_MAX
        for _ in range(FULL_LOOKS_MAX):
            if not looks_left or not has_room():
                return
            handled = self.poll()
            if not handled:
                return
            if handled < EVENTS_MAX:
                looks_left -= 1

    def poll_all(self) -> None:
        """Handle everybody who is ready now, and once more who has more; nobody can make it last."""
        for _ in range(2 * (len(self._handlers) // EVENTS_MAX + 1)):
            if not self.poll():
                return

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()
