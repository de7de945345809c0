"""Intake: what peers have said, taken up in order, and no faster than they take the answers.

One read is 64 KiB, which may be thousands of requests, and the answer to one of 14 bytes may be a
megabyte. So what was read is not all taken up at once:

- **A share.** So many requests of one peer are taken up, then it is somebody else's turn: only a few at
  first, and the rest in turns (see `line`). So who says little is heard in the round in which it spoke, however many
  others have much to say: those wait for their turns.
- **A round.** What peers may say at first is bounded for all of them together, and a read by itself counts
  as well. So is the time for that, and for turns. Who is not read in a round is ready still in the next, before those
  who were. Of workers and supervisors more is taken up at once: their heartbeats decide about jobs.
- **Being behind.** Nothing more is taken up of a peer that is behind with taking answers: those it has
  not read yet, those that wait for their commit, and those still to be made, for which room is
  reserved when their request is taken up. So nothing is made in advance for somebody who does not read.
  What is reserved for all peers together is bounded as well.
- **Turns.** A costly request (a report, a listing, a look-up of much) is taken up only in a turn of its
  peer. A round gives turns for some milliseconds: to those who ask something costly and to those who say
  much alternately, each first come first served. So a report on a thousand queues holds others up once,
  and not as often as it was asked for, and whoever looks at one job does not wait behind all who enqueue
  thousands.
- **A crowd.** Who says little must find the broker in the midst of short rounds. So while there is such a
  one, a round gives one turn of each sort, and the more peers wait for theirs, the shorter a turn is; and
  beside a crowd of them, the round in which he is heard gives none at all, as long as the next one does.

A peer that waits for its turn, or is behind, is not read from, so what waits is bounded by one read.
One that is gone is heard to its end, in turns as well, but nothing is made for it any more; and if it says
much of which nothing can come, the rest is thrown away.
"""

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

from ..proto import limits
from ..proto.connection import Ended, Event, Refused, Request
from ..proto.messages import Drain, Drop, Enqueue, Follow, Jobs, Kick, Show, Status, Wait, Why
from ..proto.model import Role
from .deadlines import Deadlines
from .line import Line
from .peer import HOLD_ANSWER, HOLD_BACKLOG, HOLD_TURN, Peer

FIRST_REQUESTS = 32
"""Of one peer when it has been read: far more than who waits for answers has on its way, and less than a
millisecond."""

ROUND_REQUESTS = 64
"""Of all peers together at first, in one round."""

ROUND_LOOK_UPS = 32
"""For which the journal has to be asked."""

ROUND_MS = 3
"""How long peers are read in one round. In a quiet one that is never so long."""

LEAST_REQUESTS = 4
"""Of a peer that was read when the round was full already."""

TURN_REQUESTS = 64
"""Of one peer in a turn, if nobody else waits for his; else a part of that."""

SHARES_MAX = 4
"""So many waiting peers are a crowd. Whatever is shared out by their number is one part of so many at least."""

PASSES_MAX = 4
"""Turns of one peer in a round, if nobody else needs the time."""

LATELY_MS = 500
"""Who said little so long ago may say more at any moment."""

VAIN_MAX = 64
"""Of a peer that is gone: questions, and what is refused as it stands. A client that has gone with so many
of them unanswered knows nothing of what it said behind them either."""

LOOK_UPS_MAX = 128
"""Of all peers together in one visit to the journal, by turns: some 10 ms, with what comes of them. As
much as that for one peer; a part of it if more of them wait."""

QUEUED_MAX = 256
"""Of one peer in one visit to the journal, and behind what is looked up there."""

SERVER_REQUESTS = 256
"""Of one worker or supervisor when it has been read."""

HEARD_OUT_REQUESTS = 1024
"""Of an older connection, before another speaks for the same worker: more than it has slots. What it has
not heard to be confirmed, a worker says again."""

COSTLY_IN_SHARE = 32
"""A costly request is so much of a share as this many others."""

MADE_BYTES_IN_SHARE = 256
"""So many bytes that the connection answered by itself (`help`) are as much of a share as one request."""

TURNS_MS = 5
"""How long one round gives turns, if nobody else has said anything lately."""

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

WAITING: dict[type[Any], int] = {Wait: LOOK_UP_BYTES, Follow: limits.FOLLOWED_ANSWER_BYTES}
"""What may be answered at once or much later, and how much room is reserved until it is known which."""

_QUESTIONS = frozenset({Status, Jobs, Show, Why, Wait, Follow})
_SERVERS = frozenset({Role.WORK, Role.SUPERVISE})


class Intake:
    """See the module. What is taken up goes to `request`; what no request is, to `said`.

    `ended` is called for a peer that has ended or cannot be answered, when it has been heard. `round_ms`
    is the time of this round, which costs nothing; `clock_ms` the time now. `looking_up` tells how many
    requests wait for the journal.
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
        looking_up: Callable[[], int],
    ) -> None:
        self._deadlines = deadlines
        self._round_ms = round_ms
        self._clock_ms = clock_ms
        self._request = request
        self._said = said
        self._ended = ended
        self._is_stuck = is_stuck
        self._looking_up = looking_up
        self._talking = Line()
        self._asking = Line()
        """Those who wait for turns: the next of what they said is costly, or it is not."""
        self._gone_requests = limits.INTEGER_MAX
        self._reserved_bytes = 0
        self._room = ROUND_REQUESTS
        self._looked_up_before = 0
        """So many requests waited for the journal when the round began."""
        self._brief_ms = -LATELY_MS
        """When somebody was last heard to the end who had not much to say."""
        self._gave_turns = True
        """The last round did."""

    # --- taking up -------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """A round begins, with all its room."""
        self._room = ROUND_REQUESTS
        self._looked_up_before = self._looking_up()

    @property
    def has_room(self) -> bool:
        """More peers may be read in this round."""
        # Of those that waited before, a visit to a slow disk decides, and no heartbeat may wait for that.
        new_look_ups = self._looking_up() - self._looked_up_before
        is_time_left = self._clock_ms() - self._round_ms() < ROUND_MS
        return self._room > 0 and new_look_ups < ROUND_LOOK_UPS and is_time_left

    def hear(self, peer: Peer) -> None:
        """Take up what a peer has said, as far as it may be taken up now."""
        if peer.holds & HOLD_TURN:
            return
        if peer.connection.role in _SERVERS:
            share = SERVER_REQUESTS if self._room > 0 else FIRST_REQUESTS
        else:
            is_full = self._room < FIRST_REQUESTS or self._looking_up() >= LOOK_UPS_MAX
            share = LEAST_REQUESTS if is_full else FIRST_REQUESTS
        taken = share - max(self._take_up(peer, share), 0)
        # Somebody who sends his bytes one by one costs a read each.
        self._room -= max(taken, 1)
        if taken and not peer.holds & HOLD_TURN:
            self._brief_ms = self._round_ms()

    def hear_more(self, peers: Iterable[Peer]) -> None:
        """These have been answered, and may have said more: now while there is room, or when their turn comes."""
        for peer in peers:
            if self._room > 0:
                self.hear(peer)
            else:
                self._take_up(peer, 0)

    def hear_out(self, peer: Peer) -> None:
        """Take up what a worker has said, because another connection speaks for it from now on."""
        peer.count_rest()
        left = self._take_up(peer, HEARD_OUT_REQUESTS, is_last=True)
        self._room -= HEARD_OUT_REQUESTS - left
        if left <= 0:
            peer.put_off = None
            peer.connection.abandon()

    def defer(self, peers: Iterable[Peer]) -> None:
        """These may have more to say, but this round is over."""
        for peer in peers:
            self._take_up(peer, 0)

    def looked_up(self, peer: Peer) -> None:
        """Nothing of that peer waits for the journal any more."""
        if peer.holds & HOLD_TURN:
            self._line_up(peer)

    @property
    def has_turns(self) -> bool:
        """Somebody's turn has come: there is no time to sleep.

        While nothing gets to the disk no room becomes free, and a report must get through.
        """
        shares = self._shares
        if not shares:
            return False
        look_ups_max = LOOK_UPS_MAX // shares
        has_room = self._reserved_bytes < RESERVED_BYTES_MAX and self._looking_up() < look_ups_max
        return has_room or self._is_stuck()

    @property
    def _shares(self) -> int:
        return min(len(self._talking) + len(self._asking), SHARES_MAX)

    def take_turns(self) -> None:
        """Give turns while the round lasts, a few at most to each who waits, or one of each sort."""
        shares = self._shares
        since_brief_ms = self._round_ms() - self._brief_ms
        self._gave_turns = not (shares == SHARES_MAX and since_brief_ms == 0 and self._gave_turns)
        if not shares or not self._gave_turns:
            return
        begun_ms = self._clock_ms()
        for _ in range(PASSES_MAX):
            for peers in zip_longest(self._asking.next(), self._talking.next()):
                for peer in filter(None, peers):
                    if not self.has_turns:
                        return
                    if peer in self._asking or peer in self._talking:
                        peer.was_at_rest = False
                        self._take_up(peer, TURN_REQUESTS // shares, is_turn=True)
                if since_brief_ms < LATELY_MS or self._clock_ms() - begun_ms >= TURNS_MS:
                    return

    def _wait(self, peer: Peer) -> None:
        peer.hold(HOLD_TURN)
        if len(peer.queued) < QUEUED_MAX:
            # Else its turn comes when those are looked up.
            self._line_up(peer)

    def _line_up(self, peer: Peer) -> None:
        event = peer.put_off
        asks = isinstance(event, Request) and type(event.message) in _COSTLY
        (self._asking if asks else self._talking).join(peer)

    def _leave_line(self, peer: Peer) -> None:
        self._talking.leave(peer)
        self._asking.leave(peer)

    def _take_up(self, peer: Peer, left: int, *, is_turn: bool = False, is_last: bool = False) -> int:
        """Take up so much of what it has said; how much of that was left.

        Who has said no more than that is not kept waiting for a turn: what it says next is heard at once.
        """
        self._leave_line(peer)
        connection = peer.connection
        is_new = is_at_rest = False
        is_behind = peer.is_behind
        while not is_behind or is_last or peer.gone:
            if connection.is_text and peer.unanswered and not peer.gone:
                break
            event, peer.put_off = peer.put_off or connection.next_event(), None
            if event is None:
                if (peer.gone or is_last) and peer.read_rest():
                    continue
                is_at_rest = True
                break
            if left <= 0:
                peer.put_off = event
                break
            is_new = True
            left -= 1
            if peer.gone:
                if self._in_vain(peer, event):
                    continue
                event = self._unheard(event)
            if not isinstance(event, Request):
                self._said(peer, event)
                left -= len(event.data) // MADE_BYTES_IN_SHARE
                is_behind = peer.is_behind
            elif (bytes := WAITING.get(type(event.message))) is not None:
                self._owing(peer, event, bytes)
                is_behind = peer.is_behind
            elif type(event.message) not in _COSTLY:
                self._ordinary(peer, event)
            elif is_turn or peer.gone:
                self._owing(peer, event, _COSTLY[type(event.message)](event.message))
                left -= COSTLY_IN_SHARE
                is_behind = peer.is_behind
            else:
                peer.put_off = event
                break
        self._rest(peer, is_behind=is_behind, is_at_rest=is_at_rest, is_new=is_new)
        return left

    def _in_vain(self, peer: Peer, event: Event) -> bool:
        """Whether nothing can come of that, now that the peer is gone."""
        if isinstance(event, Ended) or (isinstance(event, Request) and type(event.message) not in _QUESTIONS):
            return False
        peer.vain_count += 1
        if peer.vain_count > VAIN_MAX:
            peer.connection.abandon()
        return True

    def _unheard(self, event: Event) -> Event:
        """A request of somebody who is gone, under a number of its own.

        Nobody reads the answer. But the number that was given, which in text mode is mostly none, may be
        that of a request that still waits, and then it could not be used.
        """
        if not isinstance(event, Request):
            return event
        self._gone_requests += 1
        return event._replace(number=self._gone_requests)

    def _rest(self, peer: Peer, *, is_behind: bool, is_at_rest: bool, is_new: bool) -> None:
        if peer.connection.is_text and peer.unanswered and not peer.gone:
            peer.hold(HOLD_ANSWER)
            peer.unhold(HOLD_TURN)
        elif is_behind and not peer.gone:
            peer.hold(HOLD_BACKLOG)
            peer.unhold(HOLD_TURN)
        elif is_at_rest:
            peer.was_at_rest = True
            peer.unhold(HOLD_TURN)
        else:
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

    def _owing(self, peer: Peer, event: Request, bytes: int) -> None:
        self._reserve(peer, event.number, bytes)
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
        self._leave_line(peer)
        peer.unhold(HOLD_TURN)
        self._change(peer, -peer.reserved_bytes)
        peer.owes.clear()

    def _change(self, peer: Peer, bytes: int) -> None:
        peer.reserved_bytes += bytes
        self._reserved_bytes += bytes
