"""What a handler may raise to say how its attempt ended, and what is raised in it from outside.

    Retry         try again, after a given time or after the usual backoff; charged like any failure
    Permanent     no retry can mend it: the job is dead at once
    JobTimeout    raised in the handler when it is over its time limit
    JobCancelled  raised in the handler when its job was cancelled, or its lease lost

The last two are no `Exception`s, so that `except Exception` in a handler does not swallow them. They
are raised once; a handler that goes on all the same is killed after the grace.
"""

from ..proto import limits

AFTER_S_MAX = limits.DURATION_MS_MAX / limits.SECOND_MS


class Retry(Exception):
    """End this attempt and try again: `after_s` from now, or by the job's backoff if it is None."""

    after_s: float | None = None
    reason: str = ""

    def __init__(self, after_s: float | None = None, reason: str = "") -> None:
        if after_s is not None and not 0 <= after_s <= AFTER_S_MAX:
            raise ValueError(f"after_s must be seconds from 0 to {AFTER_S_MAX:.0f}, not {after_s!r}")
        super().__init__(reason or "asked to be tried again")
        self.after_s = after_s
        self.reason = reason


class Permanent(Exception):
    """End this job: it becomes dead, with `reason`, until a person kicks it."""

    reason: str = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "permanent error")
        self.reason = reason


class JobTimeout(BaseException):
    """This attempt is over its time limit. Clean up and let it pass: the grace is short."""


class JobCancelled(BaseException):
    """This job is no longer wanted. Clean up and let it pass: the grace is short."""
