"""A line: peers that wait for a turn, those who say little in front of those who always have more.

First come, first served, but in two rows, as packets of sparse and of busy flows are served by FQ-CoDel
(RFC 8290, section 4.2): who had been heard to the end before stands in the one, who has had a turn and has
still more to say in the other. So a person who asks for the status does not wait behind a thousand who have
asked for a thousand each. In one round of four the others go first, so that nobody waits for ever.
"""

from itertools import chain, islice

from .peer import Peer

LOOKED_AT_MAX = 64
"""Peers of a line that are looked at in a round for whose turn it is."""

BUSY_FIRST_EVERY = 4
"""So many rounds."""


class Line:
    """See the module. Who joins it twice keeps his place."""

    def __init__(self) -> None:
        self._sparse: dict[Peer, None] = {}
        self._busy: dict[Peer, None] = {}
        self._rounds = 0

    def __len__(self) -> int:
        return len(self._sparse) + len(self._busy)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._sparse or peer in self._busy

    def join(self, peer: Peer) -> None:
        """It waits from now on."""
        if peer not in self:
            (self._sparse if peer.was_at_rest else self._busy)[peer] = None

    def leave(self, peer: Peer) -> None:
        """It does not wait, or not any more."""
        self._sparse.pop(peer, None)
        self._busy.pop(peer, None)

    def next(self) -> list[Peer]:
        """Those whose turn it is in this round, in their order."""
        self._rounds += 1
        is_busy_first = self._rounds % BUSY_FIRST_EVERY == 0
        rows = (self._busy, self._sparse) if is_busy_first else (self._sparse, self._busy)
        return list(islice(chain(*rows), LOOKED_AT_MAX))
