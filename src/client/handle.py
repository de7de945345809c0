"""What an application holds of its jobs: the handle of one it enqueued, and the outcome it waited for."""

from typing import TYPE_CHECKING, Any, NamedTuple

from ..proto import messages
from .result import result_of
from .spec import milliseconds
from .values import decode_value

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .sync import Client

_FINAL = ("done", "dead", "cancelled")


class JobOutcome(NamedTuple):
    """Where a job stood when `wait` returned. `outcome` and `reason` are of its last attempt.

    `result` is what the handler returned; a worker that answered with other bytes than msgpack has
    them here as they are.
    """

    id: str
    state: str
    outcome: str | None
    reason: str
    result: Any
    attempt: int

    @property
    def is_finished(self) -> bool:
        """Done, dead or cancelled; False if the time to wait ran out first."""
        return self.state in _FINAL

    @property
    def is_done(self) -> bool:
        """It ended well."""
        return self.state == "done"


class _Handle:
    """A stored job. Its id is all it takes to ask for it again, from any process."""

    __slots__ = ("id", "number")

    def __init__(self, id: str, number: int) -> None:
        self.id = id
        self.number = number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class JobHandle(_Handle):
    """A stored job. Its id is all it takes to ask for it again, from any process."""

    __slots__ = ("_client",)

    def __init__(self, client: "Client", id: str, number: int) -> None:
        super().__init__(id, number)
        self._client = client

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """Wait until it is done, dead or cancelled, at most `timeout_s`; its outcome by then."""
        return self._client.wait(self.id, timeout_s=timeout_s)

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait like `wait`, and give what the handler returned.

        JobUnfinishedError if it is not finished in time, JobDeadError or JobCancelledError if it ended
        without a result, JobNotFoundError once its retention is over.
        """
        return result_of(self.wait(timeout_s), timeout_s)

    def cancel(self) -> str:
        """Withdraw it. `cancelled`: nothing of it runs; `cancelling`: its process is being ended."""
        return self._client.cancel(self.id)


class AsyncJobHandle(_Handle):
    """A stored job, for programs with an event loop. Its id is all it takes to ask for it again."""

    __slots__ = ("_client",)

    def __init__(self, client: "AsyncClient", id: str, number: int) -> None:
        super().__init__(id, number)
        self._client = client

    async def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """Wait until it is done, dead or cancelled, at most `timeout_s`; its outcome by then."""
        return await self._client.wait(self.id, timeout_s=timeout_s)

    async def result(self, timeout_s: float | None = None) -> Any:
        """Wait like `wait`, and give what the handler returned.

        JobUnfinishedError if it is not finished in time, JobDeadError or JobCancelledError if it ended
        without a result, JobNotFoundError once its retention is over.
        """
        return result_of(await self.wait(timeout_s), timeout_s)

    async def cancel(self) -> str:
        """Withdraw it. `cancelled`: nothing of it runs; `cancelling`: its process is being ended."""
        return await self._client.cancel(self.id)


def wait_message(id: str, timeout_s: float | None) -> messages.Wait:
    """The request of a `wait`."""
    return messages.Wait(id, None if timeout_s is None else milliseconds("timeout_s", timeout_s))


def outcome_of(waited: messages.Waited) -> JobOutcome:
    """The answer to it, in the application's values."""
    return JobOutcome(
        waited.id,
        waited.state,
        waited.outcome,
        waited.reason,
        _value(waited.result),
        waited.attempt,
    )


def _value(result: bytes | None) -> Any:
    if result is None:
        return None
    try:
        return decode_value(result)
    except ValueError:
        return result
