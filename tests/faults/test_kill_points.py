"""A broker killed at every system call by which it changes a file or says something; here at a few of them."""

import pytest
from support.faults.gate import hindrance
from support.faults.kill_points import run
from support.faults.place import program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


STRIDE = 25
"""So that a score of boundaries are of all parts of the script."""


def test_nothing_is_lost_whatever_call_the_broker_is_killed_at(seed: int) -> None:
    done = run(seed, 20, stride=STRIDE)
    assert done.violations == []
    assert done.counts["boundaries"] == 20
    # A few may lie behind the last call of their run: not all runs are of one length.
    assert sum(count for name, count in done.counts.items() if name.startswith("kills at ")) >= 18
    assert done.counts["calls of the script"] > 300


def test_broker_that_answers_before_its_commit_is_found_out() -> None:
    # The calls of the middle of the script, where every other one is of a commit.
    done = run(12, 4, program("support.faults.broken.early_answers:main"), stride=7)
    assert any("although its ack was confirmed" in text for text in done.violations)
