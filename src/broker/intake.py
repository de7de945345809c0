"""Intake: what peers have said, taken up in order, and no faster than they take the answers.

One read is 64 KiB, which may be thousands of requests, and the answer to one of 14 bytes may be a
megabyte. So what was read is not all taken up at once:

- **A share.** So many requests of one peer are taken up, then it is somebody else's turn.
- **Being behind.** Nothing more is taken up of a peer that is behind with taking answers: those it has
  not read yet, those that wait for their commit, and those still to be made, for which room is
  reserved when their request is taken up. So nothing is made in advance for somebody who does not read.
  What is reserved for all peers together is bounded as well.
- **Turns.** A costly request (a report, a listing, a look-up of much) is taken up only in a turn of its
  peer. A round gives turns for some milliseconds, first come first served, so that a report on a
  thousand queues holds others up once, and not as often as it was asked for.

A peer that waits for its turn, or is behind, is not read from, so what waits is bounded by one read.
One that is gone is heard to its end, in shares as well, but nothing is made for it any more.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ..proto import limits
from ..proto.connection import Ended, Refused, Request
from ..proto.messages import Drain, Drop, Enqueue, Jobs, Kick, Show, Status, Wait, Why
from .deadlines import Deadlines
from .peer import HOLD_ANSWER, HOLD_BACKLOG, HOLD_TURN, Peer

SHARE_REQUESTS = 256
"""Of one peer at a time: some 5 ms. Half of what a client's pipeline has on its way."""

COSTLY_IN_SHARE = 32
"""A costly request is so much of a share as this many others."""

MADE_BYTES_IN_SHARE = 256
"""So many bytes that the connection answered by itself (`help`) are as much of a share as one request."""

TURNS_MS = 5
"""How long one round gives turns."""

RESERVED_BYTES_MAX = limits.MIB
"""For all peers together: what a few pages of jobs take, and as many more would take another 30 ms."""

ROW_BYTES = 300
"""Of a job in a listing, or of its change by `kick` and `drop`."""

LOOK_UP_BYTES = 16 * limits.KIB
"""A job with its history and result: seldom more than 1 KiB, at most 300."""

CAUSES_BYTES = 4 * limits.KIB

REPORT_BYTES = limits.OUTGOING_BYTES_PAUSE + 1
"""A report of a thousand queues is even more; one at a time is what matters."""


def _of_many(message: Kick | Drop) -> int:
    return ROW_BYTES * message.limit if message.queue is not None else ROW_BYTES


_COSTLY: dict[type[Any], Callable[[Any], int]] = {
    Status: lambda _: REPORT_BYTES,
    Jobs: lambda message: ROW_BYTES * message.limit,
    Show: lambda message: LOOK_UP_BYTES + (limits.PAYLOAD_BYTES_MAX if message.payload else 0),
    Why: lambda _: CAUSES_BYTES,
    Kick: _of_many,
    Drop: _of_many,
}
"""What needs a turn, and how much room is reserved for its answer or for what it does."""

_READ_ONLY = frozenset({Status, Jobs, Show, Why})


class Intake:
    """See the module. What is taken up goes to `request`; what no request is, to `said`.

    `ended` is called for a peer that has ended or cannot be answered, when it has been heard. `round_ms`
    is the time of this round, which costs nothing; `clock_ms` the time now.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        *,
        round_ms: Callable[[], int],
        clock_ms: Callable[[], int],
        request: Callable[[Peer, Request], None],
        said: Callable[[Peer, Refused | Ended], None],
        ended: Callable[[Peer], None],
        is_stuck: Callable[[], bool],
    ) -> None:
        self._deadlines = deadlines
        self._round_ms = round_ms
        self._clock_ms = clock_ms
        self._request = request
        self._said = said
        self._ended = ended
        self._is_stuck = is_stuck
        self._turns: dict[Peer, None] = {}
        self._reserved_bytes = 0

    # --- taking up -------------------------------------------------------------------------------------

    def hear(self, peer: Peer) -> None:
        """Take up what a peer has said, as far as it may be taken up now."""
        if not peer.holds & HOLD_TURN:
            self._take_up(peer, SHARE_REQUESTS)

    def hear_out(self, peer: Peer) -> None:
        """Take up all that a worker has said, because another connection speaks for it from now on."""
        self._leave(peer)
        self._take_up(peer, limits.INTEGER_MAX, is_last=True)

    def defer(self, peers: Iterable[Peer]) -> None:
        """These may have more to say, but this round is over."""
        for peer in peers:
            self._wait(peer)

    def looked_up(self, peer: Peer) -> None:
        """Nothing of that peer waits for the journal any more."""
        if peer.holds & HOLD_TURN:
            self._turns[peer] = None

    @property
    def has_turns(self) -> bool:
        """Somebody's turn has come: there is no time to sleep.

        While nothing gets to the disk no room becomes free, and a report must get through.
        """
        return bool(self._turns) and (self._reserved_bytes < RESERVED_BYTES_MAX or self._is_stuck())

    def take_turns(self) -> None:
        """Give turns while the round lasts, at most one to each who waits, but always one."""
        if not self._turns:
            return
        until_ms = self._clock_ms() + TURNS_MS
        for peer in list(self._turns):
            if not self.has_turns:
                return
            if peer in self._turns:
                self._leave(peer)
                self._take_up(peer, SHARE_REQUESTS, is_turn=True)
            if self._clock_ms() >= until_ms:
                return

    def _wait(self, peer: Peer) -> None:
        peer.hold(HOLD_TURN)
        if not peer.queued:
            # Else its turn comes when that is looked up: one visit to the journal has one share of it.
            self._turns[peer] = None

    def _leave(self, peer: Peer) -> None:
        self._turns.pop(peer, None)
        peer.unhold(HOLD_TURN)

    def _take_up(self, peer: Peer, left: int, *, is_turn: bool = False, is_last: bool = False) -> None:
        connection = peer.connection
        is_new = is_at_rest = False
        is_behind = peer.is_behind
        while left > 0 and (not is_behind or is_last or peer.gone):
            if connection.is_text and peer.unanswered and not peer.gone:
                break
            event, peer.put_off = peer.put_off or connection.next_event(), None
            if event is None:
                is_at_rest = True
                break
            is_new = True
            left -= 1
            if not isinstance(event, Request):
                self._said(peer, event)
                left -= len(event.data) // MADE_BYTES_IN_SHARE
                is_behind = peer.is_behind
            elif isinstance(event.message, Wait):
                self._wait_for_job(peer, event)
                is_behind = peer.is_behind
            elif type(event.message) not in _COSTLY:
                self._ordinary(peer, event)
            elif is_turn or peer.gone:
                self._costly(peer, event)
                left -= COSTLY_IN_SHARE
                is_behind = peer.is_behind
            else:
                peer.put_off, left = event, 0
        self._rest(peer, is_behind=is_behind, is_at_rest=is_at_rest, is_new=is_new)

    def _rest(self, peer: Peer, *, is_behind: bool, is_at_rest: bool, is_new: bool) -> None:
        if peer.connection.is_text and peer.unanswered and not peer.gone:
            peer.hold(HOLD_ANSWER)
        elif is_behind and not peer.gone:
            peer.hold(HOLD_BACKLOG)
        elif not is_at_rest:
            self._wait(peer)
        self._deadlines.heard(peer, self._round_ms(), is_new=is_new, is_at_rest=is_at_rest)
        if peer.over or peer.gone or peer.broken:
            self._ended(peer)

    # --- what is owed ----------------------------------------------------------------------------------

    def _ordinary(self, peer: Peer, event: Request) -> None:
        message = event.message
        if isinstance(message, Enqueue):
            if message.wait_ms is not None:
                self._reserve(peer, event.number, 0)
        elif isinstance(message, Drain):
            self._reserve(peer, event.number, 0)
        self._request(peer, event)

    def _wait_for_job(self, peer: Peer, event: Request) -> None:
        if not peer.gone:
            # Until it is known whether the job has ended already.
            self._reserve(peer, event.number, LOOK_UP_BYTES)
            self._request(peer, event)

    def _costly(self, peer: Peer, event: Request) -> None:
        if peer.gone and type(event.message) in _READ_ONLY:
            return
        self._reserve(peer, event.number, _COSTLY[type(event.message)](event.message))
        self._request(peer, event)

    def _reserve(self, peer: Peer, request: int, bytes: int) -> None:
        # An id that is used twice at once, against the rules, is one entry: less is reserved then than
        # is owed, but what is owed was taken up within bounds.
        peer.owes[request] = peer.owes.get(request, 0) + bytes
        self._change(peer, bytes)

    def waits(self, peer: Peer, request: int) -> None:
        """That request has been handled; unless it is answered already, it waits for something to happen."""
        if request in peer.owes:
            self._change(peer, -peer.owes[request])
            peer.owes[request] = 0
            if peer.holds & HOLD_BACKLOG and not peer.is_behind:
                peer.unhold(HOLD_BACKLOG)
                self.defer((peer,))

    def answered(self, peer: Peer, request: int) -> None:
        """What was reserved for it is on its way as bytes."""
        peer.unanswered -= 1
        if peer.owes:
            self._change(peer, -peer.owes.pop(request, 0))

    def left(self, peer: Peer) -> None:
        """It has ended: nothing is owed to it any more."""
        self._leave(peer)
        self._change(peer, -peer.reserved_bytes)
        peer.owes.clear()

    def _change(self, peer: Peer, bytes: int) -> None:
        peer.reserved_bytes += bytes
        self._reserved_bytes += bytes
