"""A crowd of useless connections: honest clients do not feel it, and it is shown out in time."""

import pytest
from support.faults import dead_weight, hurry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CROWD = 200
PATIENT = "support.faults.broken.patience:main"
SILENT_S = 0.5 + dead_weight.LATE_S + 0.5
"""Until those who say nothing should have been ended."""


def test_honest_clients_do_not_feel_a_useless_crowd(seed: int) -> None:
    tally = dead_weight.run_with(dead_weight.HURRIED, seed, CROWD, times=hurry.TIMES)
    assert tally.violations == []
    assert tally.counts["connections"] == tally.counts["ended"] == CROWD


def test_broker_that_waits_for_ever_and_keeps_everything_is_found_out(seed: int) -> None:
    tally = dead_weight.run_with(PATIENT, seed, 3 * CROWD, times=hurry.TIMES, hold_s=SILENT_S)
    text = "\n".join(tally.violations)
    assert "of silent not all were ended" in text
    assert "memory had a peak" in text
