"""The job that is running, for its handler: `current_job()`.

A worker runs one job at a time, so this is one plain variable: threads that a handler starts see the
same job, which a context variable would hide from them.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple


class CurrentJob(NamedTuple):
    """What a handler may know of its attempt."""

    id: str
    attempt: int
    """Counts from 1."""
    token: tuple[int, int]
    """(epoch, counter): grows with every delivery, so a later attempt can fence off an earlier one."""
    kind: str
    queue: str
    headers: Mapping[str, str]
    deadline: float
    """When the time limit ends it, by `time.monotonic()`."""

    def remaining_s(self) -> float:
        """Seconds left of the time limit; below 0 when it is over."""
        return self.deadline - time.monotonic()


_current: CurrentJob | None = None


def current_job() -> CurrentJob:
    """The running job. LookupError outside of one, as when a handler is called like a function."""
    if _current is None:
        raise LookupError("no job is running here: the function was called directly, not by a worker")
    return _current


def set_current_job(job: CurrentJob | None) -> None:
    """For the worker: before a handler starts, and after it has ended."""
    global _current
    _current = job
