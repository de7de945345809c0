"""The job that is running, for its handler: `current_job()`.

A worker for plain functions runs one job at a time, so this is one plain variable: threads that a
handler starts see the same job, which a context variable would hide from them. Where many run side by
side it is a context variable, one for each task.
"""

import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .reporter import Reporter


class CurrentJob(NamedTuple):
    """What a handler may know of its attempt, and say while it runs. Its methods are for any thread."""

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
    reporter: "Reporter | None" = None
    """The worker's; None where a job is made up, in a test of a handler say: then nobody hears."""

    def remaining_s(self) -> float:
        """Seconds left of the time limit; below 0 when it is over."""
        return self.deadline - time.monotonic()

    def progress(self, done: float | None = None, total: float = 100, text: str = "") -> None:
        """Say how far it is: `progress(40)` percent, `progress(3, 12, "pages")`, `progress(text="indexing")`.

        `stoker show` and `why` have the last one while the attempt runs; then it is gone. It never
        waits: calls in quick succession may be dropped, and a text over 256 bytes is cut. Beats as well.
        """
        if self.reporter is not None:
            self.reporter.progress(self.token, done, total, text)

    def heartbeat(self, within_s: float | None = None) -> None:
        """Say that it is alive. With `within_s`: end me as over my time if I do not beat again within that.

        `within_s` holds until it is said anew; 0 takes it back. Without one, nothing depends on beats:
        the supervisor vouches for a live worker, however busy it is.
        """
        if self.reporter is not None:
            self.reporter.heartbeat(self.token, within_s)

    @property
    def cancelled(self) -> bool:
        """It is no longer wanted, or over its time: clean up and return, or be killed after the grace.

        A plain handler is also told by JobCancelled or JobTimeout, raised once in its main thread.
        """
        return self.reporter is not None and self.reporter.is_to_end(self.token)

    def once(self, connection: Any, *, paramstyle: str | None = None) -> bool:
        """Whether this job does its work for the first time, by a row in the application's own database.

        `connection` is a DB-API 2 connection with an open transaction, or one that opens it by itself.
        The row becomes true with that transaction: make the effects in it too, then commit. See
        `once.py` for what happens when two attempts meet.
        """
        from .once import once

        return once(connection, self.id, paramstyle=paramstyle)


_current: CurrentJob | None = None
_of_task: ContextVar[CurrentJob | None] = ContextVar("stoker_job", default=None)


def current_job() -> CurrentJob:
    """The running job. LookupError outside of one, as when a handler is called like a function."""
    job = running_job()
    if job is None:
        raise LookupError("no job is running here: the function was called directly, not by a worker")
    return job


def running_job() -> CurrentJob | None:
    """The same; None outside of one."""
    return _of_task.get() or _current


def set_current_job(job: CurrentJob | None) -> None:
    """For the worker: before a handler starts, and after it has ended."""
    global _current
    _current = job


def set_task_job(job: CurrentJob) -> None:
    """For the worker: in the task that the handler is about to run in, and those it will start."""
    _of_task.set(job)
