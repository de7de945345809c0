"""Second deliveries, counted: none while nothing fails, and a reason for each while workers are killed."""

from pathlib import Path

import pytest
from support.faults import duplicate_rate, happy_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 4_000
SECONDS = 5
BROKEN = "support.faults.broken.repeats:main"


def test_happy_path_has_no_second_delivery(seed: int) -> None:
    tally = happy_path.HARNESS.run(seed, JOBS)
    assert tally.violations == []
    assert tally.counts == {"jobs": JOBS, "second deliveries": 0}


def test_second_deliveries_under_kills_are_explained_each(seed: int) -> None:
    tally = duplicate_rate.HARNESS.run(seed, SECONDS)
    assert tally.violations == []
    assert tally.counts["worker kills"] > 0 and tally.counts["broker kills"] > 0
    assert tally.counts["jobs under worker kills"] > 0
    assert tally.counts["second deliveries under broker kills"] == 0


def test_broker_that_repeats_jobs_is_found_out(short_directory: Path, seed: int) -> None:
    tally = happy_path.trial(short_directory, seed, 1_000, broker=BROKEN)
    assert tally.counts["second deliveries"] >= 5
    assert "after attempt 2" in tally.violations[0]


def test_repeats_that_no_kill_explains_are_found_among_those_that_one_does(
    short_directory: Path, seed: int
) -> None:
    tally = duplicate_rate.trial(short_directory, seed, 3, broker=BROKEN)
    assert any("'released'" in text for text in tally.violations), tally.violations
