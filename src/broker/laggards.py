"""Laggards: peers that have not read what is for them, and how long and how much of that is borne.

What one peer leaves unread is bounded already: nothing more is taken up of it. But it is up to a quarter
of a megabyte and one answer, and a thousand such peers are a thousand times as much. So two rules more:

- **Time.** A client that has taken nothing of what waits for it for `UNREAD_MS_MAX` is disconnected. Workers
  and supervisors are not: one that is stopped for a while would lose its place, and what is pushed to it
  is bounded by its slots.
- **Room.** When all together leave more than `UNREAD_BYTES_MAX` unread, those are disconnected that have taken
  nothing for longest, clients first, until it is less.

Neither loses anything that was acknowledged, since nobody has read the acknowledgement.
"""

from collections.abc import Callable, Iterator

from ..proto import limits
from ..proto.model import Role
from .peer import Peer


class _Lag:
    """What one peer has left, and since when it has taken nothing."""

    __slots__ = ("bytes", "sent_bytes", "since_ms")

    def __init__(self, peer: Peer, now_ms: int) -> None:
        self.bytes = peer.unread_bytes
        self.sent_bytes = peer.sent_bytes
        self.since_ms = now_ms


class Laggards:
    """See the module. `round_ms` is the monotonic time of this round."""

    def __init__(self, round_ms: Callable[[], int]) -> None:
        self._round_ms = round_ms
        self._lags: dict[Peer, _Lag] = {}
        """In the order of `since_ms`."""
        self._bytes = 0

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._lags

    def flushed(self, peer: Peer) -> list[Peer]:
        """It has been sent what it takes now; who is to go because all together leave too much."""
        self._look(peer)
        return list(self._excess()) if self._bytes > limits.UNREAD_BYTES_MAX else []

    def overdue(self) -> list[Peer]:
        """Those whose time is over."""
        self._look_at_all()
        until_ms = self._round_ms() - limits.UNREAD_MS_MAX
        return [peer for peer, lag in self._lags.items() if lag.since_ms <= until_ms and not _serves(peer)]

    def _look(self, peer: Peer) -> None:
        lag = self._lags.get(peer)
        if lag is not None and peer.is_reachable and lag.sent_bytes == peer.sent_bytes:
            self._bytes += peer.unread_bytes - lag.bytes
            lag.bytes = peer.unread_bytes
            return
        if lag is not None:
            self._bytes -= self._lags.pop(peer).bytes
        if peer.unread_bytes and peer.is_reachable:
            self._lags[peer] = lag = _Lag(peer, self._round_ms())
            self._bytes += lag.bytes

    def _look_at_all(self) -> None:
        # Some have ended, and some have read on without a word from us.
        for peer in list(self._lags):
            self._look(peer)

    def _excess(self) -> Iterator[Peer]:
        self._look_at_all()
        excess = self._bytes - limits.UNREAD_BYTES_MAX
        for peer, lag in sorted(self._lags.items(), key=lambda item: _serves(item[0])):
            if excess <= 0:
                return
            excess -= lag.bytes
            yield peer


def _serves(peer: Peer) -> bool:
    return peer.connection.role in (Role.WORK, Role.SUPERVISE)
