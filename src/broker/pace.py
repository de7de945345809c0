"""Is the disk fast at the moment? Then a small batch may be committed by the loop itself.

Handing a batch to the journal thread and hearing of its end costs two wake-ups of a thread, on many
hosts as much as the synced commit itself. So while nothing else is in flight and the last commits
were all short, the loop does a small one in its own time. One that took long puts an end to that
until enough short ones, done by the thread, have followed: a slow disk holds the loop up once, for
one commit, and what that took is given back to the leases like any other stall.

Only small batches count. A look at many rows, or the folding in of a log, is long by itself.

Pure: whoever did the work says how long it took.
"""

SHORT_S = 0.004
"""Longer than a healthy sync on any disk that deserves to be called fast; shorter than what anybody
who waits for the broker would notice."""

SHORT_IN_A_ROW = 32
"""So many short ones are no accident."""


class Pace:
    """How long the last pieces of work took."""

    def __init__(self) -> None:
        self._short_in_a_row = 0

    @property
    def is_fast(self) -> bool:
        """All of the last ones were short, and they were enough."""
        return self._short_in_a_row >= SHORT_IN_A_ROW

    def note(self, took_s: float) -> None:
        """One more piece of work was done."""
        self._short_in_a_row = self._short_in_a_row + 1 if took_s <= SHORT_S else 0
