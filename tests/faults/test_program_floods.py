"""Programs that write without end leave the worker to others, and take no more than what they were given."""

import pytest
from support.faults.program_floods import run_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LATE_S = 0.25
"""On a machine that has other tests to run."""


def test_short_jobs_are_not_held_up_and_nothing_grows(seed: int) -> None:
    tally = run_with(LATE_S, seed, 60)
    assert tally.violations == []
    assert tally.counts["short jobs"] == 60
