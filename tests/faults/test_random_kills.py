"""Real daemons under load, and SIGKILL of anybody at any moment: what was acknowledged stays true."""

from pathlib import Path

import pytest
from support.faults.errands import Plan
from support.faults.random_kills import HARNESS, Conditions, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 100

BROKER_ONLY = {"broker": 1}
WORKERS_ONLY = {"worker": 1}
TREES = Plan(pause_ms=20, kinds=(("tree", 1),), work_ms_max=100)
BOUND_MS = 1000
"""Some broken brokers never finish what they began: no need to wait for it for long."""


def test_nothing_acknowledged_is_lost_and_nothing_is_repeated_without_a_reason(seed: int) -> None:
    tally = HARNESS.run(seed, KILLS)
    assert tally.violations == []
    assert tally.counts["kills"] == KILLS
    assert tally.counts["answers to enqueues"] >= tally.counts["jobs"] / 2 > KILLS / 2
    # Among so many kills some hit a job that ran, and some jobs failed by themselves.
    assert tally.counts["second deliveries"] > 0
    assert tally.counts["retries after a backoff"] > 0


@pytest.mark.parametrize(
    ("broken", "kills", "victims", "plan", "promise"),
    [
        pytest.param("early_answers", 5, BROKER_ONLY, Plan(), "acknowledged_jobs_exist", id="early answers"),
        pytest.param("same_epoch", 4, BROKER_ONLY, Plan(), "tokens_grow", id="same epoch"),
        pytest.param("hasty_release", 24, WORKERS_ONLY, TREES, "nothing_runs_twice_at_once", id="hasty"),
    ],
)
def test_broken_broker_is_found_out(
    short_directory: Path,
    seed: int,
    broken: str,
    kills: int,
    victims: dict[str, int],
    plan: Plan,
    promise: str,
) -> None:
    conditions = Conditions(f"support.faults.broken.{broken}:main", victims, plan, BOUND_MS)
    tally = trial(short_directory, seed, kills, conditions)
    # Each says how to see it again.
    found = f"seed {seed}, kill {kills}: {promise}: "
    assert any(text.startswith(found) for text in tally.violations), tally.violations
