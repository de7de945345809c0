"""The broker's log: one line a decision on standard error (`config.logline` has the form of lines).

Each event may say so many lines in so many seconds; what is held back is counted and the count is told
later. Payloads are never logged: that is up to the callers.

A reader of standard error that stopped reading must not stop the broker. So a line is written only
if it fits without waiting, and is otherwise dropped and counted.
"""

import os
import select
import time
from collections.abc import Callable

from ..config import logline
from ..config.logline import LOGFMT

BURST = 20
WINDOW_S = 5.0
"""So many lines of one event name in so many seconds."""


class _Budget:
    """Lines one event may still say in its window, and how many it could not."""

    __slots__ = ("held_back", "left", "since")

    def __init__(self, since: float, left: int) -> None:
        self.since = since
        self.left = left
        self.held_back = 0


class Log:
    """Writes events to one descriptor, which it does not own."""

    def __init__(
        self,
        descriptor: int = 2,
        *,
        form: str = LOGFMT,
        name: str = "broker",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._descriptor = descriptor
        self._form = form
        self._name = name
        self._clock = clock
        self._budgets: dict[str, _Budget] = {}
        self._dropped = 0
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)

    def event(self, event: str, /, *, burst: int = BURST, **fields: object) -> None:
        """Say that `event` happened, at most `burst` times in `WINDOW_S` seconds."""
        budget = self._budget(event, burst)
        if budget.left <= 0:
            budget.held_back += 1
            return
        budget.left -= 1
        if budget.held_back:
            fields["held_back"] = budget.held_back
            budget.held_back = 0
        self._say(logline.moment(time.time()), self._name, event, fields)

    def figures(self, at_s: int, **fields: object) -> None:
        """Figures as of a whole second; as JSON their event is `figures`. The caller bounds their number."""
        event, source = ("", "") if self._form == LOGFMT else ("figures", self._name)
        self._say(logline.second(at_s), source, event, fields)

    def _budget(self, event: str, burst: int) -> _Budget:
        now = self._clock()
        budget = self._budgets.get(event)
        if budget is None:
            budget = self._budgets[event] = _Budget(now, burst)
        elif now - budget.since >= WINDOW_S:
            budget.since, budget.left = now, burst
        return budget

    def _say(self, stamp: str, source: str, event: str, fields: dict[str, object]) -> None:
        if self._dropped:
            fields["lines_dropped"] = self._dropped
        self._write(logline.line(self._form, stamp, source, event, fields))

    def _write(self, line: bytes) -> None:
        try:
            if self._writable.poll(0) and os.write(self._descriptor, line):
                self._dropped = 0
                return
        except OSError:
            # Nobody is left to tell: a log that cannot be written is no reason to end.
            pass
        self._dropped += 1
