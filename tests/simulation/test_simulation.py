"""The real core, committer and recovery under simulated faults: every promise holds, for any seed.

What is simulated is everything around them: sockets, the journal thread, the host's clocks, workers,
supervisors, clients and an operator. `pytest tests/simulation --seed 123` runs one seed again.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.oracle import second_deliveries, violations
from support.simulation.trial import trial
from support.simulation.world import CALM, Plan, World


def test_promises_hold_through_faults(run_seed: int) -> None:
    finding = trial(run_seed)
    assert not finding.faults, str(finding)


def test_nothing_is_delivered_twice_without_faults(seed: int) -> None:
    world = World(seed, CALM)
    world.run()
    assert violations(world.history.records) == []
    assert second_deliveries(world.history.records) == []


def test_faults_do_happen() -> None:
    world = World(1)
    world.run()
    kinds = {type(record).__name__ for record in world.history.records}
    assert kinds >= {"Crashed", "Died", "Silent", "Dropped"}
    assert second_deliveries(world.history.records)


def test_same_seed_does_the_same() -> None:
    plan = Plan(chaos_ms=5000)
    assert trial(7, plan).trace_hash == trial(7, plan).trace_hash
    assert trial(7, plan).trace_hash != trial(8, plan).trace_hash


@pytest.mark.slow
def test_same_seed_does_the_same_in_another_process() -> None:
    program = (
        "from support.simulation.trial import trial\n"
        "from support.simulation.world import Plan\n"
        "print(trial(7, Plan(chaos_ms=5000)).trace_hash)"
    )
    tests = Path(__file__).parent.parent
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=tests,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1
