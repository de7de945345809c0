"""A crowd of useless connections: honest clients do not feel it, and it is shown out in time."""

import pytest
from support.faults import dead_weight, hurry
from support.faults.dead_weight import Conditions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CROWD = 200
SHORT = Conditions(dead_weight.HURRIED, hurry.TIMES, jobs=50, slower_max=6.0, not_slow_s=0.03)
"""Other tests run beside this one on the same few cores. The long runs are stricter."""

SILENT_S = 0.5 + dead_weight.LATE_S + 0.5
"""Until those who say nothing should have been ended."""

PATIENT = SHORT._replace(broker="support.faults.broken.patience:main", hold_s=SILENT_S)


def test_honest_clients_do_not_feel_a_useless_crowd(seed: int) -> None:
    tally = dead_weight.run_with(SHORT, seed, CROWD)
    assert tally.violations == []
    assert tally.counts["connections"] == tally.counts["ended"] == CROWD


def test_broker_that_waits_for_ever_and_keeps_everything_is_found_out(seed: int) -> None:
    tally = dead_weight.run_with(PATIENT, seed, 3 * CROWD)
    text = "\n".join(tally.violations)
    assert "of silent not all were ended" in text
    assert "memory had a peak" in text
