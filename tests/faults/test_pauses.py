"""SIGSTOP and SIGCONT of workers and of the broker: who is late is fenced, and who is not loses nothing."""

from pathlib import Path

import pytest
from support.faults.pauses import HARNESS, Conditions, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAUSES = 28


def test_no_stale_ack_counts_and_no_lease_ends_for_a_pause_of_the_broker(seed: int) -> None:
    tally = HARNESS.run(seed, PAUSES)
    assert tally.violations == []
    assert tally.counts["pauses"] >= PAUSES
    assert tally.counts["pauses over the lease"] > 0
    assert tally.counts["pauses of the broker"] > 0
    assert tally.counts["second deliveries"] > 0


@pytest.mark.parametrize(
    ("conditions", "pauses", "promise"),
    [
        pytest.param(
            Conditions("support.faults.broken.unfenced:main", 1, 5, False, False),
            26,
            "stale_tokens_change_nothing",
            id="unfenced",
        ),
        pytest.param(
            Conditions("support.faults.broken.judges_first:main", settles=False),
            25,
            "second_deliveries_have_a_reason",
            id="judges first",
        ),
    ],
)
def test_broken_broker_is_found_out(
    short_directory: Path, seed: int, conditions: Conditions, pauses: int, promise: str
) -> None:
    tally = trial(short_directory, seed, pauses, conditions)
    assert any(f": {promise}: " in text for text in tally.violations), tally.violations
