"""The broker's log: one line a decision on standard error, as `time broker event key=value ...`.

Whatever a value holds, a line stays one line of plain ASCII: control characters, quotes and all
that is not ASCII are escaped, long values are cut. Each event may say so many lines in so many
seconds; what is held back is counted and the count is told later. Payloads are never logged: that
is up to the callers.

A reader of standard error that stopped reading must not stop the broker. So a line is written only
if it fits without waiting, and is otherwise dropped and counted.
"""

import json
import os
import select
import time
from collections.abc import Callable

LINE_BYTES_MAX = 2048
"""Well under PIPE_BUF, so that lines of several processes on one pipe never mix."""

VALUE_CHARACTERS_MAX = 300

BURST = 20
WINDOW_S = 5.0
"""So many lines of one event name in so many seconds."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-/+,@%[]()<>#*'")


def quote(value: object) -> str:
    """One value: bare if nothing in it needs care, else a JSON string in plain ASCII."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > VALUE_CHARACTERS_MAX:
        text = text[:VALUE_CHARACTERS_MAX] + "..."
    if text and _PLAIN.issuperset(text):
        return text
    # json leaves DEL alone, which terminals act on.
    return json.dumps(text).replace("\x7f", "\\u007f")


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
        self, descriptor: int = 2, *, name: str = "broker", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._descriptor = descriptor
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
        self._write(self._line(event, fields))

    def _budget(self, event: str, burst: int) -> _Budget:
        now = self._clock()
        budget = self._budgets.get(event)
        if budget is None:
            budget = self._budgets[event] = _Budget(now, burst)
        elif now - budget.since >= WINDOW_S:
            budget.since, budget.left = now, burst
        return budget

    def _line(self, event: str, fields: dict[str, object]) -> bytes:
        at = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
        pairs = "".join(f" {key}={quote(value)}" for key, value in fields.items())
        line = f"{stamp}.{int(at * 1000) % 1000:03d}Z {self._name} {event}{pairs}"
        return line[: LINE_BYTES_MAX - 1].encode("ascii", "backslashreplace") + b"\n"

    def _write(self, line: bytes) -> None:
        if self._dropped:
            line = line[:-1] + f" lines_dropped={self._dropped}\n".encode("ascii")
        try:
            if self._writable.poll(0) and os.write(self._descriptor, line):
                self._dropped = 0
                return
        except OSError:
            # Nobody is left to tell: a log that cannot be written is no reason to end.
            pass
        self._dropped += 1
