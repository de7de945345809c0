"""What `status` counts is what there is, after anything that can happen to a job."""

import pytest
from support.faults import counters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEPS = 300


def test_counts_are_those_of_a_recount(seed: int) -> None:
    tally = counters.run(seed, STEPS)
    assert list(tally.violations) == []
    assert tally.counts["steps"] == STEPS
    assert tally.counts["recounts"] == STEPS // counters.STEPS_A_COUNT
    assert all(tally.counts[step] for step in ("enqueue", "ack", "nack", "ack_again", "cancel"))


def test_count_that_drifts_is_found_out(seed: int) -> None:
    tally = counters.run_with("support.faults.broken.drifting:main", seed, 150, settled_s=0.3)
    assert any("the journal has" in violation for violation in tally.violations), tally
