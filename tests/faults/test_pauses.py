"""SIGSTOP and SIGCONT of workers and of the broker: who is late is fenced, and who is not loses nothing."""

import tempfile
from pathlib import Path

import pytest
from support.faults.pauses import HARNESS, LONG, LONGEST, Conditions, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAUSES = 28
TRIES = 8
"""Whether somebody else has the job of a worker that lost it, before that one goes on, is for chance to say."""


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
            # A stale ack takes a worker that has lost its lease, so all of them shall lose theirs.
            Conditions("support.faults.broken.unfenced:main", 1, 5, False, False, [(LONG, LONGEST)]),
            13,
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
    tallies = (trial(_a_place(short_directory), seed + more, pauses, conditions) for more in range(TRIES))
    assert any(f": {promise}: " in text for tally in tallies for text in tally.violations)


def _a_place(directory: Path) -> Path:
    """One more directory, with a name that is as short."""
    return Path(tempfile.mkdtemp(prefix="", dir=directory))
