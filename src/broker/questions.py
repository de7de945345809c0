"""Look-ups: messages that need to know what is on disk before the core can handle them.

A message with a look-up waits, and so does everything behind it on the same connection, because a
connection's messages enter the core in their order. All look-ups of a round are one visit to the
journal. A connection is not read from while it waits, and `intake` takes up one share of what it has
said, so what waits is bounded.

The core is told at which step a look-up was asked; what left its memory since makes the look-up
out of date (`LookAgain`), and it is asked anew, in front of all that waits behind it.
"""

from collections.abc import Callable, Mapping, Sequence

import attrs

from ..proto.messages import Message
from .committer import Committer
from .core.events import Found, Received
from .core.step import Core, Want
from .journal import Journal
from .peer import HOLD_LOOK_UP, Peer


@attrs.define(eq=False)
class _Question:
    """One message in its turn. `found` is None until its look-up came back."""

    event: Received
    wants: Sequence[Want]
    found: Mapping[str, Found] | None = None
    was_asked: bool = False


class Questions:
    """Queues messages behind their look-ups and performs them in order."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        perform: Callable[[Peer, Received], None],
        looked_up: Callable[[Peer], None],
    ) -> None:
        self._core = core
        self._committer = committer
        self._perform = perform
        self._looked_up = looked_up
        self._new: list[tuple[Peer, _Question]] = []
        self._outstanding: dict[int, int] = {}
        """Core step to the number of look-ups asked at it, oldest first."""
        self.waiting_count = 0
        """Messages that wait for a look-up, and those behind them."""

    def admit(self, peer: Peer, request: int, message: Message) -> None:
        """Perform a message now, or in its turn."""
        wants = self._core.wants(message)
        event = Received(peer.id, request, message)
        if not wants and not peer.queued:
            self._perform(peer, event)
            return
        question = _Question(event, wants, None if wants else {})
        peer.queued.append(question)
        self.waiting_count += 1
        peer.hold(HOLD_LOOK_UP)
        if wants:
            self._new.append((peer, question))

    def again(self, peer: Peer, event: Received) -> None:
        """A look-up turned out to be out of date: it comes first, before all that waits behind it."""
        question = _Question(event, self._core.wants(event.message))
        peer.queued.appendleft(question)
        self.waiting_count += 1
        peer.hold(HOLD_LOOK_UP)
        self._new.append((peer, question))

    def ask(self) -> None:
        """Ask the journal for all that is new, behind everything decided so far."""
        if not self._new:
            return
        asked, self._new = self._new, []
        for _, question in asked:
            question.event.asked_at = self.opened()
            question.was_asked = True
        wants = [question.wants for _, question in asked]

        def came_back(answers: list[dict[str, Found]]) -> None:
            for (_, question), found in zip(asked, answers, strict=True):
                question.found = found
            # By peer, each once: a peer's messages go in its own order.
            for peer in dict.fromkeys(peer for peer, _ in asked):
                self._go_on(peer)

        self._committer.look(lambda journal: [look_up(journal, each) for each in wants], came_back)

    def _go_on(self, peer: Peer) -> None:
        while peer.queued:
            question: _Question = peer.queued[0]
            if question.found is None:
                return
            peer.queued.popleft()
            self.waiting_count -= 1
            question.event.found = question.found
            self._perform(peer, question.event)
            if question.was_asked:
                self.closed(question.event.asked_at)
        peer.unhold(HOLD_LOOK_UP)
        self._looked_up(peer)

    def opened(self) -> int:
        """A look-up is made now: the step it belongs to, for `closed`."""
        step = self._core.steps
        self._outstanding[step] = self._outstanding.get(step, 0) + 1
        return step

    def closed(self, step: int) -> None:
        """That look-up is over."""
        self._outstanding[step] -= 1
        if not self._outstanding[step]:
            del self._outstanding[step]

    def trim(self) -> None:
        """Let the core forget what only look-ups that are over could need."""
        self._core.trim_departed(next(iter(self._outstanding), self._core.steps))


def look_up(journal: Journal, wants: Sequence[Want]) -> dict[str, Found]:
    """What the journal holds of everything that the core wants to know of one message."""
    found: dict[str, Found] = {}
    for want in wants:
        if want.id is not None:
            found[want.id] = journal.find(want.id, history=want.history, payload=want.payload)
        elif want.queue is not None:
            for id in journal.dead_ids(want.queue, want.limit):
                found[id] = journal.find(id)
    return found
