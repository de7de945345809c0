"""When a program that ended is started again: pure, so that every rule can be tested.

The first end after a quiet time is followed by a start at once, because most ends are a kill or a
passing fault and jobs wait. Each further one doubles the wait, up to a cap. Some ends say that a
restart would only repeat them; then everything ends, with their exit code.
"""

from ..config.exits import NEVER_RESTART, Exit

PAUSE_S_FIRST = 0.5
PAUSE_S_MAX = 30.0
HEALTHY_S = 60.0
"""A program that ran for so long has earned a fresh start of the count."""


class Restarts:
    """The restarts of one program."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._is_first = True

    def pause_after(self, code: int, ran_s: float) -> float | None:
        """Seconds until it is to be started again after it ended with `code`; None for never.

        `code` is negative for a signal. UNAVAILABLE is final only of the first run: an app that has
        never been imported has a fault that a person must mend, one that has been may be back soon.
        """
        is_first, self._is_first = self._is_first, False
        if code in NEVER_RESTART or (code == Exit.UNAVAILABLE and is_first):
            return None
        if ran_s >= HEALTHY_S:
            self._pause_s = 0.0
        pause_s = self._pause_s
        self._pause_s = min(max(PAUSE_S_FIRST, pause_s * 2), PAUSE_S_MAX)
        return pause_s


def described(code: int) -> str:
    """An exit code or a signal in words."""
    if code < 0:
        import signal

        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    try:
        return f"ended with exit code {code} ({Exit(code).name})"
    except ValueError:
        return f"ended with exit code {code}"
