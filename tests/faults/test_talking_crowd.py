"""A crowd that talks as much as it can: honest clients are answered beside it, and when it has gone."""

import pytest
from support.faults import talking_crowd
from support.faults.talking_crowd import Conditions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CROWD = 90
LARGE_CROWD = 400
SHORT = Conditions(turns=2, jobs=40, slower_max=6.0, not_slow_s=0.15)
"""Other tests run beside this one on the same few cores. The long runs are stricter."""

BROKEN = SHORT._replace(broker="support.faults.broken.boundless:main", turns=1, jobs=10, not_slow_s=0.05)
"""A sound broker takes 10 ms beside such a crowd, if nothing else runs."""


def test_crowd_that_talks_holds_nobody_up(seed: int) -> None:
    tally = talking_crowd.run_with(SHORT, seed, CROWD)
    assert tally.violations == []
    assert tally.counts["connections"] == SHORT.turns * CROWD
    assert tally.counts["said_kib"] > 10 * tally.counts["connections"]


def test_broker_whose_rounds_have_no_bound_is_found_out(seed: int) -> None:
    tally = talking_crowd.run_with(BROKEN, seed, LARGE_CROWD)
    assert any("ms beside the crowd" in text for text in tally.violations), tally.counts
