"""A little churn: nothing grows that must not, and a broker that hoards is found out."""

import pytest
from support.faults.growth import growth

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECONDS = 6


def test_nothing_grows_that_must_not(seed: int) -> None:
    tally = growth(seed, SECONDS)
    assert tally.violations == []
    assert tally.counts["jobs"] > 0


def test_broker_that_hoards_is_found_out() -> None:
    found = " ".join(growth(1, SECONDS, "support.faults.broken.hoarder:main").violations)
    assert "memory grew" in found and "descriptors grew" in found and "the log grew" in found
