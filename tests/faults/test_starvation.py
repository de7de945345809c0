"""A live broker without descriptors or memory: who is there is served, and what was said stays true."""

import pytest
from support.faults import starvation
from support.faults.starvation import CLIENTS, Famine, Pinch
from support.stack import STOKER

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(starvation.needs()), reason=starvation.needs()),
]


def test_broker_without_descriptors_serves_those_who_are_there(seed: int) -> None:
    tally = starvation.run_with(STOKER, seed, [Famine])
    assert tally.violations == []
    assert tally.counts["clients"] == CLIENTS
    assert 0 < tally.counts["refused"] < CLIENTS


def test_broker_without_memory_loses_nothing_that_it_acknowledged(seed: int) -> None:
    tally = starvation.run_with(STOKER, seed, [Pinch])
    assert tally.violations == []
    assert tally.counts["acknowledged"] > 0
    assert tally.counts["ended"] == 1


def test_broker_that_never_rests_is_found_out(seed: int) -> None:
    tally = starvation.run_with("support.faults.broken.restless:main", seed, [Famine])
    assert any("busy for" in violation for violation in tally.violations), tally
