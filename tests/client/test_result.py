"""A result, or an error that says why there is none."""

import pytest

from stoker import JobCancelledError, JobDeadError, JobOutcome, JobUnfinishedError, NoResultError, StokerError
from stoker.client.result import result_of


def test_done_job_gives_its_result_also_when_that_is_none() -> None:
    assert result_of(JobOutcome("a", "done", "ok", "", [1], 1), 5) == [1]
    assert result_of(JobOutcome("a", "done", "ok", "", None, 1), 5) is None


@pytest.mark.parametrize(
    ("outcome", "timeout_s", "error", "text"),
    [
        (
            JobOutcome("a", "dead", "permanent", "permanent error: no such customer", None, 3),
            None,
            JobDeadError,
            "job a is dead (attempt 3): permanent error: no such customer",
        ),
        (JobOutcome("a", "dead", None, "expired", None, 0), None, JobDeadError, "job a is dead: expired"),
        (
            JobOutcome("a", "cancelled", "cancelled", "its handler was interrupted", None, 1),
            1,
            JobCancelledError,
            "job a was cancelled (attempt 1): its handler was interrupted",
        ),
        (JobOutcome("a", "cancelled", None, "", None, 0), None, JobCancelledError, "job a was cancelled"),
        (
            JobOutcome("a", "dead", "crash", "", None, 2),
            None,
            JobDeadError,
            "job a is dead (attempt 2): crash",
        ),
        (
            JobOutcome("a", "scheduled", "error", "ValueError: boom", None, 1),
            2.5,
            JobUnfinishedError,
            "job a was not finished within 2.5 s: it is scheduled (attempt 1): ValueError: boom",
        ),
        (
            JobOutcome("a", "ready", None, "", None, 0),
            1,
            JobUnfinishedError,
            "job a was not finished within 1 s: it is ready",
        ),
    ],
)
def test_any_other_job_raises_its_own_error(
    outcome: JobOutcome, timeout_s: float | None, error: type[NoResultError], text: str
) -> None:
    with pytest.raises(error) as raised:
        result_of(outcome, timeout_s)
    assert (str(raised.value), raised.value.outcome) == (text, outcome)


def test_unfinished_is_a_timeout_to_who_catches_those() -> None:
    assert issubclass(JobUnfinishedError, TimeoutError)
    assert issubclass(NoResultError, StokerError)
