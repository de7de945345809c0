"""Programs as jobs leave nothing behind, whatever they do and whoever is killed."""

from pathlib import Path

import pytest
from support.faults import process_trees
from support.paths import python_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = 22
CARELESS = Path(process_trees.__file__).with_name("broken") / "careless_sentinel"


def test_nothing_of_a_program_outlives_its_job_or_its_keepers(seed: int) -> None:
    tally = process_trees.run(seed, JOBS)
    assert tally.violations == []
    assert tally.counts["jobs"] >= JOBS
    assert tally.counts["kills"] == len(process_trees.VICTIMS)


def test_sentinel_that_looks_only_at_its_program_is_found_out(seed: int) -> None:
    tally = process_trees.run_with({"PYTHONPATH": python_path(CARELESS)}, seed, JOBS, 0)
    assert any("of their processes live" in each for each in tally.violations), tally
