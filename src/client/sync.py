"""`Client`: the broker for programs without an event loop, over plain blocking sockets.

A client may be shared by any number of threads, and used in a child after a fork: see `caller` for
what connections it opens and what it does when one is lost. Making one opens nothing.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..proto import limits, messages
from ..proto.address import socket_path
from .caller import Caller
from .handle import JobHandle, JobOutcome, outcome_of, wait_message
from .spec import JobSpec, enqueue_message, milliseconds

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from .following import Following
    from .spec import EnqueueOptions

TIMEOUT_S = 30.0
"""Far above any healthy answer (a commit takes milliseconds), below the patience of a person."""

RETRY_S = 10.0
"""A broker restarts in well under a second; this also covers one that recovers a large journal."""


class Client:
    """A client of the broker at `socket`, which by default is found as `stoker` itself finds it.

    `timeout_s` bounds the wait for an answer; `retry_s` is how long a lost broker is tried again
    before the caller hears of it, 0 being not at all.
    """

    def __init__(
        self, socket: str | None = None, *, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S
    ) -> None:
        path = socket_path(socket, os.environ, os.getuid())
        self._caller = Caller(path, timeout_s=timeout_s, retry_s=retry_s)

    @property
    def socket(self) -> str:
        """The path of the broker's socket."""
        return self._caller.path

    def close(self) -> None:
        """Close idle connections. The client stays usable: the next call opens one."""
        self._caller.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # A client is often made for one call and dropped. `__init__` may have failed before `_caller`.
        caller = getattr(self, "_caller", None)
        if caller is not None:
            caller.close()

    # --- jobs of one's own -------------------------------------------------------------------------

    def enqueue(
        self,
        kind: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: "Unpack[EnqueueOptions]",
    ) -> JobHandle:
        """Store a job; when this returns it is on disk.

        With an `id`, enqueueing the same again gives the same job, and another body ConflictError.
        Raises ValueRefusedError or OptionError before anything is sent, RefusedError if the broker
        says no, BrokerUnreachableError if nothing was sent, and OutcomeUnknown, with the job's id,
        if nobody can know.
        """
        stored = self._caller.ask(enqueue_message(kind, args, kwargs, options))
        return JobHandle(self, stored.id, stored.number)

    def enqueue_many(self, jobs: Iterable[JobSpec]) -> list[JobHandle]:
        """Store many jobs over one connection, without waiting for each; handles in the same order.

        Each is stored for itself. EnqueueManyError if one was not; it says which were.
        """
        # Loaded here, because most programs never enqueue in bulk.
        from .bulk import enqueue_all

        return enqueue_all(self, self._caller, (spec.message for spec in jobs))

    def wait(self, id: str, timeout_s: float | None = None) -> JobOutcome:
        """Wait until a job is done, dead or cancelled, at most `timeout_s`; how it stands then."""
        return outcome_of(self._caller.ask(wait_message(id, timeout_s)))

    def cancel(self, id: str) -> str:
        """Withdraw a job. `cancelled`: nothing of it runs; `cancelling`: its process is being ended."""
        return str(self._caller.ask(messages.Cancel(id)).state)

    def follow(self, id: str, *, lossless: bool = False, tied: bool = False) -> "Following":
        """What the program of a job writes, piece by piece, as it does. Nothing is sent before its first use.

        Who is slow loses what is old, and is told how much. With `lossless` the program waits instead, for as long as the
        connection lasts. With `tied` the job is cancelled when the connection ends before it.
        """
        # Loaded here, because most programs follow nothing.
        from .following import Following, Reading

        caller = Caller(self._caller.path, timeout_s=self._caller.timeout_s, retry_s=self._caller.retry_s)
        return Following(caller, Reading(id, lossless=lossless, tied=tied))

    # --- looking ------------------------------------------------------------------------------------

    def show(self, id: str, *, payload: bool = False) -> Mapping[str, Any]:
        """Everything about one job, with its payload as bytes if asked for."""
        job: Mapping[str, Any] = self._caller.ask(messages.Show(id, payload)).job
        return job

    def jobs(
        self, *, queue: str | None = None, state: str | None = None, kind: str | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """All jobs, oldest first, fetched page by page as they are used up."""
        after = 0
        while True:
            page = self.jobs_page(
                queue=queue, state=state, kind=kind, after=after, limit=limits.JOBS_PAGE_MAX
            )
            yield from page.jobs
            after = page.after
            if not after:
                return

    def jobs_page(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> messages.JobsPage:
        """At most `limit` jobs with numbers above `after`; its `after` continues, 0 was the last page."""
        page: messages.JobsPage = self._caller.ask(messages.Jobs(queue, state, kind, after, limit))
        return page

    def status(self) -> Mapping[str, Any]:
        """Queues, pools, workers, storage and warnings."""
        status: Mapping[str, Any] = self._caller.ask(messages.Status()).status
        return status

    def why(self, id: str) -> messages.Because:
        """Why a job is where it is and not running, most important first."""
        because: messages.Because = self._caller.ask(messages.Why(id))
        return because

    # --- operating ----------------------------------------------------------------------------------

    def kick(
        self, id: str | None = None, *, queue: str | None = None, limit: int = limits.JOBS_PAGE_MAX
    ) -> int:
        """Revive a dead job, or up to `limit` dead jobs of a queue, oldest first; how many."""
        return int(self._caller.ask(messages.Kick(id, queue, limit)).job_count)

    def drop(
        self, id: str | None = None, *, queue: str | None = None, limit: int = limits.JOBS_PAGE_MAX
    ) -> int:
        """Delete a finished job, or up to `limit` dead jobs of a queue, oldest first; how many."""
        return int(self._caller.ask(messages.Drop(id, queue, limit)).job_count)

    def pause(self, queue: str | None = None) -> None:
        """Hand out no more jobs of a queue, or of any, until `resume`."""
        self._caller.ask(messages.Pause(queue))

    def resume(self, queue: str | None = None) -> None:
        """End a `pause`; without a queue, also a `drain`."""
        self._caller.ask(messages.Resume(queue))

    def drain(self, timeout_s: float | None = None) -> int:
        """Hand out no more jobs and wait, at most `timeout_s`, until none runs; how many still do."""
        timeout_ms = None if timeout_s is None else milliseconds("timeout_s", timeout_s)
        return int(self._caller.ask(messages.Drain(timeout_ms)).leased_count)

    def snapshot(self, name: str) -> messages.SnapshotWritten:
        """Have the broker write a consistent copy of its journal; where, and its size."""
        written: messages.SnapshotWritten = self._caller.ask(messages.Snapshot(name))
        return written
