"""What handlers raise."""

import pytest

from stoker import JobCancelled, JobTimeout, Permanent, Retry


def test_except_exception_does_not_swallow_what_is_raised_from_outside() -> None:
    for raised in (JobTimeout, JobCancelled):
        assert not issubclass(raised, Exception)


@pytest.mark.parametrize("after_s", [-1, float("nan"), float("inf"), 10**12])
def test_retry_refuses_a_time_that_cannot_be_meant(after_s: float) -> None:
    with pytest.raises(ValueError, match="after_s"):
        Retry(after_s=after_s)


def test_reason_is_what_the_exception_says() -> None:
    assert str(Permanent("no such customer")) == "no such customer"
    assert str(Retry(reason="busy")) == "busy"
