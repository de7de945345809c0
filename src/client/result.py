"""What came of a job for whoever wants what its handler returned: the value, or an error that says why not.

    NoResultError           there is none; `outcome` is how the job stands
      JobUnfinishedError    not within the time given; it may still come
      JobDeadError          the job is dead: attempts used up, a permanent error, expired, ...
      JobCancelledError     the job was withdrawn

A result that could not be kept (too large, or of a type that does not travel) ended its attempt as
`permanent` in the worker, so the job is dead and says so: nothing is ever made up in place of a
result. After the retention is over the broker knows no such job: JobNotFoundError.
"""

from typing import TYPE_CHECKING, Any

from ..proto.errors import StokerError

if TYPE_CHECKING:
    from .handle import JobOutcome


class NoResultError(StokerError):
    """The job has no result. `outcome` is how it stood: state, outcome and reason of its last attempt."""

    def __init__(self, message: str, outcome: "JobOutcome") -> None:
        super().__init__(message)
        self.outcome = outcome


class JobUnfinishedError(NoResultError, TimeoutError):
    """The job was not finished within the time given. It goes on; ask again."""


class JobDeadError(NoResultError):
    """The job is dead. The message has the reason of its last attempt."""


class JobCancelledError(NoResultError):
    """The job was withdrawn. (In a handler that is to be ended JobCancelled is raised, without Error.)"""


def result_of(outcome: "JobOutcome", timeout_s: float | None) -> Any:
    """The value of a job that is done, or the error of one that is not."""
    if outcome.is_done:
        return outcome.result
    last = _last_attempt(outcome)
    if outcome.state == "dead":
        raise JobDeadError(f"job {outcome.id} is dead{last}", outcome)
    if outcome.state == "cancelled":
        raise JobCancelledError(f"job {outcome.id} was cancelled{last}", outcome)
    within = "" if timeout_s is None else f" within {timeout_s:g} s"
    raise JobUnfinishedError(
        f"job {outcome.id} was not finished{within}: it is {outcome.state}{last}", outcome
    )


def _last_attempt(outcome: "JobOutcome") -> str:
    # The reason of a job that ended names the outcome where that helps.
    said = outcome.reason or outcome.outcome
    counted = f" (attempt {outcome.attempt})" if outcome.attempt else ""
    return f"{counted}: {said}" if said else counted
