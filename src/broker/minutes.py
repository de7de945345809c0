"""The lines of the log that come by the minute: one a queue that is not at rest, stamped with the minute.

    2026-07-20T10:15:00Z queue=mail ready=12 leased=1 scheduled=0 done=204 dead=3 oldest_ready_s=48 retries_1m=5

They follow the wall clock, so that those of several hosts and days lie side by side. When that clock is set,
a minute may be left out, or said twice; never more than one at a time.
"""

from ..proto import limits
from .core.figures import Figures, Minute
from .log import Log


class Minutes:
    """Knows which minute it is, and says what is to be said of it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._minute: int | None = None

    def has_begun(self, wall_ms: int) -> bool:
        """Whether another minute has begun since the last call; not at the first."""
        before, self._minute = self._minute, wall_ms // limits.MINUTE_MS
        return before is not None and before != self._minute

    def left_ms(self, wall_ms: int) -> int:
        """Until the next minute begins."""
        return limits.MINUTE_MS - wall_ms % limits.MINUTE_MS

    def say(self, minute: Minute) -> None:
        """The lines of the minute that has begun."""
        for row in minute.rows:
            self._say({"queue": row.queue}, row)
        if minute.left_out:
            self._say({"queues": minute.left_out}, minute.rest)

    def _say(self, of: dict[str, object], row: Figures) -> None:
        assert self._minute is not None
        self._log.figures(
            self._minute * limits.MINUTE_MS // limits.SECOND_MS,
            **of,
            ready=row.ready,
            leased=row.leased,
            scheduled=row.scheduled,
            done=row.done,
            dead=row.dead,
            oldest_ready_s=row.oldest_ready_ms // limits.SECOND_MS,
            retries_1m=row.retries,
        )
