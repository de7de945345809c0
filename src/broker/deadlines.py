"""Deadlines of connections: say something, finish what you began, and do not linger after an error.

Each is a dictionary in order of time, so that only its head need be looked at.
"""

from collections.abc import Callable, Iterator

from ..proto import limits
from ..proto.model import Role
from .peer import Peer

_Since = dict[int, tuple[Peer, int]]
"""Connection to the peer and the monotonic millisecond from which its time counts."""


class Deadlines:
    """Which connections owe something."""

    def __init__(self) -> None:
        self._silent: _Since = {}
        self._incomplete: _Since = {}
        self._finishing: _Since = {}

    def connected(self, peer: Peer, now_ms: int) -> None:
        """It has to say something soon."""
        self._silent[peer.id] = (peer, now_ms)

    def heard(self, peer: Peer, now_ms: int, *, is_new: bool, is_at_rest: bool = True) -> None:
        """It was read from. `is_new`: a whole message came, so what is incomplete now began just now.

        Not `is_at_rest`: what it has sent is not all taken up, so it is not known to owe anything.
        """
        if peer.connection.is_text is not None:
            self._silent.pop(peer.id, None)
        if not (is_at_rest and peer.connection.incomplete):
            self._incomplete.pop(peer.id, None)
        elif is_new or peer.id not in self._incomplete:
            self._incomplete.pop(peer.id, None)
            self._incomplete[peer.id] = (peer, now_ms)

    def finishing(self, peer: Peer) -> None:
        """It is ending, but something of it is unanswered: look again at its `finish_by_ms`."""
        self._finishing.setdefault(peer.id, (peer, peer.finish_by_ms))

    def left(self, peer: Peer) -> None:
        """It owes nothing any more."""
        for since in (self._silent, self._incomplete, self._finishing):
            since.pop(peer.id, None)

    def longest_silent(self, uid: int, at_least_ms: int, now_ms: int) -> Peer | None:
        """The connection of a uid that has said nothing for longest, if that is long enough."""
        return _longest(self._silent, uid, now_ms - at_least_ms, lambda _: True)

    def longest_incomplete(self, uid: int, at_least_ms: int, now_ms: int) -> Peer | None:
        """The one that has owed the rest of a frame or line for longest, if that is long enough.

        It may be read from, so it is its own fault, and loses no answer. Workers and supervisors stay:
        one that is stopped for a moment in mid-frame would lose its place, and its jobs in the end.
        """
        return _longest(self._incomplete, uid, now_ms - at_least_ms, _may_give_way)

    def overdue(self, now_ms: int) -> Iterator[tuple[Peer, str, str]]:
        """Peers whose time is over, with the code and the text of what they are told."""
        for peer in _take_due(self._silent, now_ms - limits.HANDSHAKE_MS):
            yield peer, "handshake_timeout", f"nothing was said for {limits.HANDSHAKE_MS} ms"
        for peer in _take_due(self._incomplete, now_ms - limits.FRAME_MS_MAX):
            yield peer, "frame_timeout", f"a frame or line was not whole after {limits.FRAME_MS_MAX} ms"

    def to_finish(self, now_ms: int) -> list[Peer]:
        """Peers that have lingered long enough after an error."""
        return _take_due(self._finishing, now_ms)


def _longest(since: _Since, uid: int, until_ms: int, may: Callable[[Peer], bool]) -> Peer | None:
    for peer, since_ms in since.values():
        if since_ms > until_ms:
            return None
        if peer.credentials.uid == uid and may(peer):
            return peer
    return None


def _may_give_way(peer: Peer) -> bool:
    serves = peer.connection.role in (Role.WORK, Role.SUPERVISE)
    return not (serves or peer.holds or peer.unanswered)


def _take_due(since: _Since, until_ms: int) -> list[Peer]:
    due: list[Peer] = []
    for peer, since_ms in since.values():
        if since_ms > until_ms:
            break
        due.append(peer)
    for peer in due:
        del since[peer.id]
    return due
