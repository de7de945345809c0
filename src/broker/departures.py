"""Connections that have ended, until it is known how: did the process die, or only hang up?

A dying process closes its sockets a moment before its pidfd fires. So when a worker or supervisor
hangs up, the verdict waits for its pidfd, but not for long: what has not fired by then belongs to a
process that lives and may come back.

A worker that leaves with nothing open, and a supervisor that leaves when its workers have, end in order.
Nothing is said of the one, and of the other only that its pool has left (`liveness`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..proto import limits
from ..proto.connection import END_OF_FILE
from ..proto.model import Role
from .core.events import Disconnected, Event, PeerExited
from .log import Log
from .peer import Peer

VERDICT_MS = 50
"""Far more than a process takes between closing its files and being dead."""


class Departures:
    """Peers between the end of their connection and the verdict."""

    def __init__(self, step: Callable[[Event], None], log: Log, is_missed: Callable[[int], bool]) -> None:
        """`is_missed`: whether the end of a connection, by its number, leaves something open."""
        self._step = step
        self._log = log
        self._is_missed = is_missed
        self._waiting: dict[int, tuple[Peer, int]] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._waiting

    def peer(self, id: int) -> Peer | None:
        """The peer of that connection, if its verdict is still to come."""
        entry = self._waiting.get(id)
        return entry[0] if entry is not None else None

    def peers(self) -> Iterable[Peer]:
        """All of them."""
        return [peer for peer, _ in self._waiting.values()]

    def add(self, peer: Peer, now_ms: int) -> None:
        """A connection has ended."""
        watched = peer.pidfd is not None and peer.connection.role in (Role.WORK, Role.SUPERVISE)
        if watched and peer.introduced and not peer.exited:
            peer.close_socket()
            self._waiting[peer.id] = (peer, now_ms + VERDICT_MS)
        else:
            self._tell(peer)

    def settled(self, peer: Peer) -> bool:
        """Whether input of this peer is the pidfd of a departure, which is thereby settled."""
        if self._waiting.pop(peer.id, None) is None:
            return False
        self._tell(peer)
        return True

    def returned(self, key: tuple[Any, ...]) -> None:
        """The worker or supervisor of that name is back on another connection: it lives."""
        for peer, _ in list(self._waiting.values()):
            if peer.key == key:
                self.settled(peer)

    def pass_time(self, now_ms: int) -> None:
        """Give up waiting for those whose time is over."""
        for peer, until_ms in list(self._waiting.values()):
            if until_ms > now_ms:
                return
            self.settled(peer)

    def delay_ms(self, now_ms: int) -> int:
        """In how many milliseconds `pass_time` is due."""
        if not self._waiting:
            return limits.WALL_RECHECK_MS
        return max(next(iter(self._waiting.values()))[1] - now_ms, 0)

    def _tell(self, peer: Peer) -> None:
        if peer.key is not None and (peer.reason not in ("", END_OF_FILE) or self._is_missed(peer.id)):
            pid = peer.credentials.pid
            self._log.event("disconnected", pid=pid, died=peer.exited, reason=peer.reason)
        if peer.introduced:
            if peer.exited:
                self._step(PeerExited(peer.id))
            self._step(Disconnected(peer.id))
        peer.close()
