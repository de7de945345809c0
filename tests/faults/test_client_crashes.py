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


TWICE = Conditions(f"{BROKEN}.pushes:twice", sends_max=1, broker_kills=0)
NEVER = TWICE._replace(broker=f"{BROKEN}.pushes:never")


@pytest.mark.parametrize(
    ("conditions", "enqueues", "promise"),
    [
        pytest.param(EARLY, 24, "same_id_is_same_job", id="early answers"),
        pytest.param(BLIND, 5, "same_id_is_same_job", id="bodies ignored"),
        pytest.param(TWICE, 75, "tokens_grow", id="pushed twice"),
        pytest.param(NEVER, 75, "what_is_done_was_delivered", id="never pushed"),
    ],
)
def test_broken_broker_is_found_out(
    short_directory: Path, seed: int, conditions: Conditions, enqueues: int, promise: str
) -> None:
    tally = trial(short_directory, seed, enqueues, conditions)
    assert any(f"{promise}: " in text for text in tally.violations), tally.violations
