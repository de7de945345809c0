"""Clients killed between an enqueue and its answer, that ask again: one job for each id, whatever happens."""

from pathlib import Path

import pytest
from support.faults.client_crashes import HARNESS, Conditions, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENQUEUES = 250


def test_each_logical_enqueue_is_one_job_that_runs_once(seed: int) -> None:
    tally = HARNESS.run(seed, ENQUEUES)
    assert tally.violations == []
    assert tally.counts["logical enqueues"] == tally.counts["conflicts"] == ENQUEUES
    assert tally.counts["client crashes"] >= ENQUEUES / 25


BROKEN = "support.faults.broken"
EARLY = Conditions(f"{BROKEN}.early_answers:main", group=3, sends_max=2, broker_kills=1)
BLIND = Conditions(f"{BROKEN}.bodies_ignored:main", broker_kills=0)


@pytest.mark.parametrize(
    ("conditions", "enqueues"),
    [pytest.param(EARLY, 24, id="early answers"), pytest.param(BLIND, 5, id="bodies ignored")],
)
def test_broken_broker_is_found_out(
    short_directory: Path, seed: int, conditions: Conditions, enqueues: int
) -> None:
    tally = trial(short_directory, seed, enqueues, conditions)
    assert any("same_id_is_same_job: " in text for text in tally.violations), tally.violations
