"""Clients killed between an enqueue and its answer, that ask again: one job for each id, whatever happens."""

from pathlib import Path

import pytest
from support.faults.client_crashes import HARNESS, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ENQUEUES = 250


def test_each_logical_enqueue_is_one_job_that_runs_once(seed: int) -> None:
    tally = HARNESS.run(seed, ENQUEUES)
    assert tally.violations == []
    assert tally.counts["logical enqueues"] == tally.counts["conflicts"] == ENQUEUES
    assert tally.counts["client crashes"] >= ENQUEUES / 25


@pytest.mark.parametrize(
    ("broken", "enqueues", "broker_kills"),
    [
        pytest.param("early_answers", 40, 0.6, id="early answers"),
        pytest.param("bodies_ignored", 5, 0, id="bodies"),
    ],
)
def test_broken_broker_is_found_out(
    short_directory: Path, seed: int, broken: str, enqueues: int, broker_kills: float
) -> None:
    call = f"support.faults.broken.{broken}:main"
    tally = trial(short_directory, seed, enqueues, broker=call, broker_kills=broker_kills)
    assert any("same_id_is_same_job: " in text for text in tally.violations), tally.violations
