"""What an application holds of its jobs: the handle of one it enqueued, and the outcome it waited for."""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
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


class JobHandle:
    """A stored job. Its id is all it takes to ask for it again, from any process."""

    __slots__ = ("_client", "id", "number")

    def __init__(self, client: "Client", id: str, number: int) -> None:
        self._client = client
        self.id = id
        self.number = number

    def wait(self, timeout_s: float | None = None) -> JobOutcome:
        """Wait until it is done, dead or cancelled, at most `timeout_s`; its outcome by then."""
        return self._client.wait(self.id, timeout_s=timeout_s)

    def cancel(self) -> str:
        """Withdraw it. `cancelled`: nothing of it runs; `cancelling`: its process is being ended."""
        return self._client.cancel(self.id)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"
