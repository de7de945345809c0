"""Several brokers started at once on one directory: one serves, the others say why they do not."""

import pytest
from support.faults import two_brokers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RACES = 6
TRIES = 8


def test_one_of_several_brokers_serves(seed: int) -> None:
    tally = two_brokers.run(seed, RACES)
    assert list(tally.violations) == []
    assert tally.counts["races"] == RACES
    assert tally.counts["refused"] == tally.counts["brokers"] - RACES
    assert tally.counts["kept"] == RACES - 1


def test_broker_that_locks_nothing_is_found_out(seed: int) -> None:
    # Whether all of a race want one socket is drawn; then that alone lets only one of them serve, and the next
    # race finds another fault.
    call = "support.faults.broken.shared_directory:main"
    tallies = (two_brokers.run_with(call, seed + more, RACES) for more in range(TRIES))
    assert any("brokers serve" in violation for tally in tallies for violation in tally.violations)
