"""Power cuts at any moment of a recorded run, and broken builds that must not get away with theirs."""

from functools import partial
from typing import Any

import pytest
from support.committers import eager_committer
from support.faults.broken.hasty_batches import HastyJournal
from support.faults.power_images import HARNESS, after_floods, run
from support.faults.recording import record
from support.faults.witness import WitnessedJournal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

IMAGES = 1000
IMAGES_NORMAL = 300
IMAGES_BROKEN = 100
RUNS_OF_FLOODS = 3
IMAGES_OF_FLOODS = 40


def test_nothing_that_was_answered_is_lost_or_damaged_by_a_power_cut(seed: int) -> None:
    tally = HARNESS.run(seed, IMAGES)
    assert tally.violations == []
    assert tally.counts["images"] == IMAGES
    assert tally.counts["finished"] == IMAGES // 25


def test_without_a_sync_of_each_commit_only_what_came_after_the_last_checkpoint_is_lost(seed: int) -> None:
    tally = run(seed, IMAGES_NORMAL, partial(record, synchronous="NORMAL"), "NORMAL")
    assert tally.violations == []


BROKEN = {
    "sync of the log removed": partial(record, swallows_syncs=True),
    "no sync of each commit": partial(record, synchronous="NORMAL"),
    "answer before the commit": partial(record, committer=eager_committer),
}


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_broken_build_is_found_out(make: Any, seed: int) -> None:
    tally = run(seed, IMAGES_BROKEN, make)
    assert [fault for fault in tally.violations if "was acknowledged and is gone" in fault]


class HastyWitnessed(WitnessedJournal, HastyJournal):
    """One that does not sync a batch of many rows, with its witness."""


def test_journal_that_does_not_sync_a_batch_of_many_rows_is_found_out(seed: int) -> None:
    tally = run(
        seed,
        RUNS_OF_FLOODS * IMAGES_OF_FLOODS,
        partial(record, kind_of_journal=HastyWitnessed),
        cuts=after_floods,
        images_per_run=IMAGES_OF_FLOODS,
    )
    assert [fault for fault in tally.violations if "no state that was made" in fault]


def test_violation_says_where_to_find_it_again() -> None:
    tally = run(5, 20, BROKEN["no sync of each commit"])
    assert all(
        text.startswith("piece 5, run ") and ", cut after operation " in text for text in tally.violations
    )
    assert tally == run(5, 20, BROKEN["no sync of each commit"])
