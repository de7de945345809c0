"""Real daemons under load, and SIGKILL of anybody at any moment: what was acknowledged stays true."""

import re
from pathlib import Path

import pytest
from support.faults.errands import Plan
from support.faults.random_kills import HARNESS, Conditions, trial

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KILLS = 70

BROKER_ONLY = {"broker": 1}
WORKERS_ONLY = {"worker": 1}
TREES = Plan(pause_ms=20, kinds=(("tree", 1),), work_ms_max=100)
LINGERING = Plan(pause_ms=400, kinds=(("linger", 1),), work_ms_max=100)
"""Workers that do not end before their zygote ends them, so that the next pool is there before it sweeps."""

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


BROKEN = "support.faults.broken"
EARLY = Conditions(f"{BROKEN}.early_answers:main", BROKER_ONLY, bound_ms=BOUND_MS)
FORGETFUL = Conditions(f"{BROKEN}.same_epoch:main", BROKER_ONLY, bound_ms=BOUND_MS)
SLOW_SWEEP = f"{BROKEN}.slow_sweep:main"
HASTY = Conditions(f"{BROKEN}.hasty_release:main", WORKERS_ONLY, TREES, BOUND_MS, SLOW_SWEEP)


@pytest.mark.parametrize(
    ("conditions", "kills", "promise"),
    [
        pytest.param(EARLY, 5, "acknowledged_jobs_exist", id="early answers"),
        pytest.param(FORGETFUL, 4, "tokens_grow", id="same epoch"),
        pytest.param(HASTY, 12, "nothing_runs_twice_at_once", id="hasty"),
    ],
)
def test_broken_broker_is_found_out(
    short_directory: Path, seed: int, conditions: Conditions, kills: int, promise: str
) -> None:
    tally = trial(short_directory, seed, kills, conditions)
    # Each violation says how to see it again. One that breaks everything may end by itself before the last kill.
    found = re.compile(rf"seed {seed}, kill \d+: {promise}: ").match
    assert any(map(found, tally.violations)), tally.violations


def test_pool_that_sweeps_slowly_is_waited_for(short_directory: Path, seed: int) -> None:
    """So it is the haste that was found out above."""
    conditions = Conditions(victims=WORKERS_ONLY, plan=TREES, pool=SLOW_SWEEP)
    assert trial(short_directory, seed, 12, conditions).violations == []


def test_zygote_is_waited_for_whose_supervisor_was_killed_while_it_swept(
    short_directory: Path, seed: int
) -> None:
    victims = {"worker": 2, "supervisor": 1}
    conditions = Conditions(victims=victims, plan=LINGERING, pool=SLOW_SWEEP)
    tally = trial(short_directory, seed, 8, conditions)
    assert tally.violations == []
    assert tally.counts["second deliveries"] > 0
