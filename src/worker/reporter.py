"""What a running handler says, and hears: progress, beats, and whether it shall end.

**Progress** goes over the worker's own connection, in one write that is given up when the socket would
not take it, and is never answered. So it costs the handler some microseconds, whoever is slow. Calls
beyond `PROGRESS_BURST` in a row and `PROGRESS_PER_S` after that are dropped.

**Beats** go nowhere: `heartbeat(within_s=30)` stores on the start page by when the next one will come.
The supervisor looks there twice a second, and ends an attempt that is overdue like one that is over its
time: the strike signal, the grace, SIGKILL. Three things follow. Beating costs next to nothing; it
works while the broker is away; and a worker that the machine did not let run is not ended for it,
because it must be overdue at two looks in a row. A progress is a beat too.

**Whether it shall end** is read from the start page, where the supervisor writes it before it signals.
So a loop that asks, a handler that has caught the exception, and threads, which never get it, all see it.

Any thread may use this, and a child that a handler forks. There is no lock: each call is one store or
one write. Whoever is left over from an earlier attempt of the slot is told apart by its token.
"""

import time
from collections.abc import Callable

from ..proto import limits
from ..proto.progress import FINE_TOTAL
from ..proto.work import Progress
from .report import cut
from .startpage import StartPage, Token

PROGRESS_BURST = 8
PROGRESS_PER_S = 4.0
"""More than a person can read; and a busy worker is a small part of the broker's day."""

BEAT_S_MIN = 1.0
"""The supervisor looks twice a second, and wants to see it overdue twice."""

BEAT_S_MAX = limits.DAY_MS / limits.SECOND_MS


class Reporter:
    """See the module. One for each slot of a worker; `say` sends a message or drops it, at once."""

    __slots__ = ("_clock", "_credit", "_credited_at", "_page", "_say", "_slot", "_token", "_within_ms")

    def __init__(
        self,
        say: Callable[[Progress], None],
        page: StartPage,
        slot: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._clock = clock
        self._page = page
        self._slot = slot
        self._token: Token | None = None
        self._within_ms = 0
        self._credit = 0.0
        self._credited_at = 0.0

    def begin(self, token: Token) -> None:
        """An attempt is about to run."""
        self._token = token
        self._credit = PROGRESS_BURST

    def end(self) -> None:
        """It has ended, and owes no beat any more."""
        token, self._token, self._within_ms = self._token, None, 0
        if token is not None:
            # Whatever is known here: the beat may have been a forked child's.
            self._page.beat_by(self._slot, token, 0)

    def progress(self, token: Token, done: float | None, total: float, text: str) -> None:
        """See `CurrentJob.progress`."""
        message = progress_message(token, done, total, text)
        self._beat(token)
        if token == self._token and self._may_say():
            self._say(message)

    def heartbeat(self, token: Token, within_s: float | None) -> None:
        """See `CurrentJob.heartbeat`."""
        if within_s is not None:
            within_ms = _milliseconds(within_s)
            if token == self._token:
                self._within_ms = within_ms
                if not within_ms and not self.is_to_end(token):
                    self._page.beat_by(self._slot, token, 0)
        self._beat(token)

    def is_to_end(self, token: Token) -> bool:
        """Whether this attempt is no longer wanted, or over its time."""
        return any(token == other for other, _, _ in self._page.kills())

    def _beat(self, token: Token) -> None:
        # Not once it is to end: what is on the page then is no longer its own to change.
        if self._within_ms and token == self._token and not self.is_to_end(token):
            self._page.beat_by(self._slot, token, time.monotonic_ns() // 1_000_000 + self._within_ms)

    def _may_say(self) -> bool:
        now = self._clock()
        credit = min(PROGRESS_BURST, self._credit + (now - self._credited_at) * PROGRESS_PER_S)
        self._credited_at = now
        self._credit = credit - 1 if credit >= 1 else credit
        return credit >= 1


def progress_message(token: Token, done: float | None, total: float, text: str) -> Progress:
    """The message of a progress; TypeError or ValueError naming what cannot be meant."""
    if type(text) is not str:
        raise TypeError(f"text must be text, not {type(text).__qualname__}")
    shown = cut(text, limits.PROGRESS_TEXT_BYTES_MAX)
    if done is None:
        return Progress(token, None, None, shown)
    for name, value in (("done", done), ("total", total)):
        if type(value) not in (int, float):
            raise TypeError(f"{name} must be a number, not {type(value).__qualname__}")
        # NaN compares false, whatever it is compared with.
        if not 0 <= value <= limits.INTEGER_MAX:
            raise ValueError(f"{name} must be from 0 to {limits.INTEGER_MAX}, not {value!r}")
    if type(done) is int and type(total) is int:
        return Progress(token, done, total, shown)
    parts = round(done / total * FINE_TOTAL) if total else 0
    return Progress(token, min(parts, limits.INTEGER_MAX), FINE_TOTAL, shown)


def _milliseconds(within_s: float) -> int:
    if type(within_s) not in (int, float):
        raise TypeError(f"within_s must be a number of seconds, not {type(within_s).__qualname__}")
    if within_s != 0 and not BEAT_S_MIN <= within_s <= BEAT_S_MAX:
        raise ValueError(
            f"within_s must be from {BEAT_S_MIN:g} to {BEAT_S_MAX:g} seconds, or 0 for no such limit, "
            f"not {within_s!r}"
        )
    return round(within_s * limits.SECOND_MS)
