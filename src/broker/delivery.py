"""Delivery: effects whose commit is done, as bytes to the peers they are for.

What is for one peer is gathered and leaves by one `send` (`flush`). An effect for a connection that
has ended meanwhile is dropped: its request's outcome is on disk, whoever asked.
"""

from collections.abc import Callable, Mapping, Sequence

from ..proto import work
from ..proto.errors import LocalProtocolError
from ..proto.messages import Message, Refusal
from .core.effects import Answer, Close, Effect, KillPeer, Log, LookAgain, Push, Refuse
from .departures import Departures
from .laggards import Laggards
from .log import Log as EventLog
from .peer import HOLD_ANSWER, HOLD_OVER, Peer


class Delivery:
    """Knows the peers by connection, and which of them something is for."""

    def __init__(
        self,
        departures: Departures,
        log: EventLog,
        *,
        round_ms: Callable[[], int],
        answered: Callable[[Peer, int], None],
        is_over: Callable[[Peer], None],
    ) -> None:
        self._departures = departures
        self._log = log
        self._answered = answered
        self._is_over = is_over
        self._laggards = Laggards(round_ms)
        self._unsent: dict[Peer, None] = {}
        self._resumed: list[Peer] = []
        self.peers: dict[int, Peer] = {}

    def release(self, effects: Sequence[Effect], payloads: Mapping[int, bytes]) -> None:
        """Carry out effects in their order."""
        for effect in effects:
            self.deliver(effect, payloads)

    def deliver(self, effect: Effect, payloads: Mapping[int, bytes]) -> None:
        """Carry out one effect. `LookAgain` is not for anybody outside and never comes here."""
        if isinstance(effect, Answer):
            if (peer := self.peers.get(effect.connection)) is not None:
                self.reply(peer, effect.request, effect.message)
        elif isinstance(effect, Push):
            if (peer := self.peers.get(effect.connection)) is not None:
                self._push(peer, effect.message, payloads)
        elif isinstance(effect, Log):
            self._log.event(effect.event, **effect.fields)
        else:
            assert not isinstance(effect, LookAgain)
            self._deliver_rare(effect)

    def _deliver_rare(self, effect: Refuse | Close | KillPeer) -> None:
        peer = self.peers.get(effect.connection)
        if isinstance(effect, KillPeer):
            self._kill(peer or self._departures.peer(effect.connection))
        elif peer is None:
            return
        elif isinstance(effect, Refuse):
            self.reply(peer, effect.request, effect.refusal)
        else:
            self._close(peer, effect)

    def reply(self, peer: Peer, request: int, message: Message) -> None:
        """Answer one request, or refuse it if `message` is a Refusal."""
        self._answered(peer, request)
        connection = peer.connection
        if not peer.is_reachable:
            # Not even made into bytes, which is what costs most.
            self._unsent[peer] = None
            return
        if type(message) is Refusal:
            self.say(peer, connection.refuse(request, message))
        else:
            try:
                self.say(peer, connection.answer(request, message))
            except LocalProtocolError as error:
                self._log.event("answer_not_sent", answer=type(message).__name__, error=error)
                self.say(peer, connection.refuse(request, Refusal("internal", f"the answer is {error}")))
        if connection.is_text:
            peer.unhold(HOLD_ANSWER)
            self._resumed.append(peer)

    def say(self, peer: Peer, data: bytes) -> None:
        """Bytes for a peer; they leave at the next `flush`."""
        peer.send(data)
        self._unsent[peer] = None

    def _push(self, peer: Peer, message: Message, payloads: Mapping[int, bytes]) -> None:
        if isinstance(message, work.Job):
            # By position: `_replace` takes three times as long, and this is done for every job.
            message = work.Job(*message[:6], payloads[message.number], *message[7:])
        self.say(peer, peer.connection.push(message))

    def _close(self, peer: Peer, effect: Close) -> None:
        # The time to finish is long over: nothing that is unanswered is waited for.
        peer.over, peer.reason, peer.finish_by_ms = True, effect.reason, 1
        peer.hold(HOLD_OVER)
        self._unsent[peer] = None

    def _kill(self, peer: Peer | None) -> None:
        if peer is None:
            return
        try:
            peer.kill()
        except ProcessLookupError:
            return
        except OSError as error:
            self._log.event("kill_refused", pid=peer.credentials.pid, error=error)

    def flush(self) -> None:
        """Send what there is to each peer; those that are done with are handed to `is_over`."""
        while self._unsent:
            unsent, self._unsent = self._unsent, {}
            for peer in unsent:
                if peer.flush():
                    self._resumed.append(peer)
                if peer.unread_bytes or peer in self._laggards:
                    self._cut_off(self._laggards.flushed(peer))
                if peer.over or not peer.is_reachable:
                    self._is_over(peer)

    def cut_off_overdue(self) -> None:
        """End the connections of those who have read nothing for too long, at the next `flush`."""
        self._cut_off(self._laggards.overdue())

    def _cut_off(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            credentials = peer.credentials
            self._log.event(
                "cut_off", burst=1, uid=credentials.uid, pid=credentials.pid, unread_bytes=peer.unread_bytes
            )
            peer.broken, peer.reason = True, "it does not read"
            self._unsent[peer] = None

    def take_resumed(self) -> list[Peer]:
        """Peers of which more may be taken up than at the last call: a line was answered, or they caught up."""
        resumed, self._resumed = self._resumed, []
        return [peer for peer in resumed if peer.id in self.peers]
