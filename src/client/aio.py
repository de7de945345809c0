"""`AsyncClient`: the broker for programs with an event loop, under asyncio and Trio alike.

The same words as `Client`, each with `await`. A client may be shared by any number of tasks, whose
requests are pipelined over one connection, and by several event loops, which have a connection each:
see `aio_caller` and `aio_line`. Making one opens nothing.

A task that is cancelled in a call gets no answer, and nobody else's is touched. What it asked may have
been done all the same. So an enqueue that was cancelled is unclear; with an `id` of the caller's own
it may be repeated. A bulk enqueue that was cancelled may have stored any of its jobs.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..proto import limits, messages
from ..proto.address import socket_path
from .aio_caller import AsyncCaller
from .handle import AsyncJobHandle, JobOutcome, outcome_of, wait_message
from .spec import JobSpec, enqueue_message, milliseconds
from .sync import RETRY_S, TIMEOUT_S

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from .aio_following import AsyncFollowing
    from .spec import EnqueueOptions


class AsyncClient:
    """A client of the broker at `socket`, which by default is found as `stoker` itself finds it.

    `timeout_s` bounds the wait for an answer; `retry_s` is how long a lost broker is tried again
    before the caller hears of it, 0 being not at all. `async with` closes at its end; without it, call
    `aclose`, or let the end of the event loop close the connection.
    """

    def __init__(
        self, socket: str | None = None, *, timeout_s: float = TIMEOUT_S, retry_s: float = RETRY_S
    ) -> None:
        path = socket_path(socket, os.environ, os.getuid())
        self._caller = AsyncCaller(path, timeout_s=timeout_s, retry_s=retry_s)

    @property
    def socket(self) -> str:
        """The path of the broker's socket."""
        return self._caller.path

    async def aclose(self) -> None:
        """Close the connection of this event loop, once its calls are answered; the next call opens one."""
        self._caller.close()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        await self.aclose()

    # --- jobs of one's own -------------------------------------------------------------------------

    async def enqueue(
        self,
        kind: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: "Unpack[EnqueueOptions]",
    ) -> AsyncJobHandle:
        """Store a job; when this returns it is on disk.

        With an `id`, enqueueing the same again gives the same job, and another body ConflictError.
        Raises ValueRefusedError or OptionError before anything is sent, RefusedError if the broker
        says no, BrokerUnreachableError if nothing was sent, and OutcomeUnknown, with the job's id,
        if nobody can know.
        """
        stored = await self._caller.ask(enqueue_message(kind, args, kwargs, options))
        return AsyncJobHandle(self, stored.id, stored.number)

    async def enqueue_many(self, jobs: Iterable[JobSpec]) -> list[AsyncJobHandle]:
        """Store many jobs without waiting for each; handles in the same order.

        Each is stored for itself. EnqueueManyError if one was not; it says which were.
        """
        # Loaded here, because most programs never enqueue in bulk.
        from .aio_bulk import enqueue_all

        return await enqueue_all(self, self._caller, (spec.message for spec in jobs))

    async def wait(self, id: str, timeout_s: float | None = None) -> JobOutcome:
        """Wait until a job is done, dead or cancelled, at most `timeout_s`; how it stands then."""
        return outcome_of(await self._caller.ask(wait_message(id, timeout_s)))

    async def cancel(self, id: str) -> str:
        """Withdraw a job. `cancelled`: nothing of it runs; `cancelling`: its process is being ended."""
        return str((await self._caller.ask(messages.Cancel(id))).state)

    def follow(self, id: str, *, lossless: bool = False, tied: bool = False) -> "AsyncFollowing":
        """What the program of a job writes, piece by piece, as it does. Nothing is sent before its first use.

        Who is slow loses what is old, and is told how much. With `lossless` the program waits instead, for as long as the
        connection lasts. With `tied` the job is cancelled when the connection ends before it.
        """
        # Loaded here, because most programs follow nothing.
        from .aio_following import AsyncFollowing
        from .following import Reading

        caller = AsyncCaller(
            self._caller.path, timeout_s=self._caller.timeout_s, retry_s=self._caller.retry_s
        )
        return AsyncFollowing(caller, Reading(id, lossless=lossless, tied=tied))

    # --- looking ------------------------------------------------------------------------------------

    async def show(self, id: str, *, payload: bool = False) -> Mapping[str, Any]:
        """Everything about one job, with its payload as bytes if asked for."""
        job: Mapping[str, Any] = (await self._caller.ask(messages.Show(id, payload))).job
        return job

    async def jobs(
        self, *, queue: str | None = None, state: str | None = None, kind: str | None = None
    ) -> AsyncIterator[Mapping[str, Any]]:
        """All jobs, oldest first, fetched page by page as they are used up."""
        after = 0
        while True:
            page = await self.jobs_page(
                queue=queue, state=state, kind=kind, after=after, limit=limits.JOBS_PAGE_MAX
            )
            for job in page.jobs:
                yield job
            after = page.after
            if not after:
                return

    async def jobs_page(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> messages.JobsPage:
        """At most `limit` jobs with numbers above `after`; its `after` continues, 0 was the last page."""
        page: messages.JobsPage = await self._caller.ask(messages.Jobs(queue, state, kind, after, limit))
        return page

    async def status(self) -> Mapping[str, Any]:
        """Queues, pools, workers, storage and warnings."""
        status: Mapping[str, Any] = (await self._caller.ask(messages.Status())).status
        return status

    async def why(self, id: str) -> messages.Because:
        """Why a job is where it is and not running, most important first."""
        because: messages.Because = await self._caller.ask(messages.Why(id))
        return because

    # --- operating ----------------------------------------------------------------------------------

    async def kick(
        self, id: str | None = None, *, queue: str | None = None, limit: int = limits.JOBS_PAGE_MAX
    ) -> int:
        """Revive a dead job, or up to `limit` dead jobs of a queue, oldest first; how many."""
        return int((await self._caller.ask(messages.Kick(id, queue, limit))).job_count)

    async def drop(
        self, id: str | None = None, *, queue: str | None = None, limit: int = limits.JOBS_PAGE_MAX
    ) -> int:
        """Delete a finished job, or up to `limit` dead jobs of a queue, oldest first; how many."""
        return int((await self._caller.ask(messages.Drop(id, queue, limit))).job_count)

    async def pause(self, queue: str | None = None) -> None:
        """Hand out no more jobs of a queue, or of any, until `resume`."""
        await self._caller.ask(messages.Pause(queue))

    async def resume(self, queue: str | None = None) -> None:
        """End a `pause`; without a queue, also a `drain`."""
        await self._caller.ask(messages.Resume(queue))

    async def drain(self, timeout_s: float | None = None) -> int:
        """Hand out no more jobs and wait, at most `timeout_s`, until none runs; how many still do."""
        timeout_ms = None if timeout_s is None else milliseconds("timeout_s", timeout_s)
        return int((await self._caller.ask(messages.Drain(timeout_ms))).leased_count)

    async def snapshot(self, name: str) -> messages.SnapshotWritten:
        """Have the broker write a consistent copy of its journal; where, and its size."""
        written: messages.SnapshotWritten = await self._caller.ask(messages.Snapshot(name))
        return written
