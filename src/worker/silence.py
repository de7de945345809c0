"""Attempts that asked to be ended when they fall silent, and have: which of them to end now. Pure.

One is ended when two looks in a row found it overdue. After a pause of the whole machine the
supervisor may be the first to run, and would see every beat overdue that was about to come. And it is
ended once: what happens to it after that is the grace's business.
"""

from collections.abc import Iterable

from .startpage import Token

LOOK_MS = 500
"""Between two looks: half of the shortest time that can be asked for."""

Attempt = tuple[str, Token]
"""Nonce of the worker, token."""


class Silence:
    """What the last look saw, and who was ended for it."""

    def __init__(self) -> None:
        self._seen: set[Attempt] = set()
        self._ended: set[Attempt] = set()

    def look(self, overdue: Iterable[Attempt]) -> list[Attempt]:
        """Those to end, of all that are overdue at this look."""
        now = set(overdue)
        due = (now & self._seen) - self._ended
        self._seen, self._ended = now, (self._ended | due) & now
        return sorted(due)
