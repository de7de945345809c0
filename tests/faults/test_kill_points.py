"""A broker killed at every system call by which it changes a file or says something; here at a few of them."""

from collections import Counter

import pytest
from support.faults.gate import SYNCS, hindrance
from support.faults.kill_points import Stop, boundaries, kill_at, run
from support.faults.place import program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


STRIDE = 55
"""So that ten boundaries are of all parts of the script."""

SELDOM = 3
"""Calls that are made no more often are those of which a start is made, and a snapshot."""

OF_A_START = {"mkdir", "fchmod", "rename", "bind", "chmod", "listen", "fallocate"}
OF_A_SNAPSHOT = {"mkdir", "fchmod", "link"}
NAMES = {"mkdirat": "mkdir", "linkat": "link", "renameat": "rename", "fchmodat": "chmod"}
"""Of those calls on machines that lack the older ones."""


def test_nothing_is_lost_whatever_call_the_broker_is_killed_at(seed: int) -> None:
    done = run(seed, 10, stride=STRIDE)
    assert done.violations == []
    assert done.counts["boundaries"] == 10
    # One may lie behind the last call of its run: not all runs are of one length.
    assert sum(count for name, count in done.counts.items() if name.startswith("kills at ")) >= 9
    assert done.counts["calls of the script"] > 300


def test_nothing_is_lost_if_the_broker_is_killed_at_a_call_that_it_seldom_makes(seed: int) -> None:
    often = Counter(boundaries(program()))
    seldom = {name: count for name, count in often.items() if count <= SELDOM and name not in SYNCS}
    assert {NAMES.get(name, name) for name in seldom} >= OF_A_START | OF_A_SNAPSHOT
    stops = [Stop(nth, name) for name, count in seldom.items() for nth in range(1, count + 1)]
    done = kill_at(seed, stops, program())
    assert done.violations == []
    assert done.counts == {"boundaries": len(stops)} | {f"kills at {name}": seldom[name] for name in seldom}


def test_broker_that_answers_before_its_commit_is_found_out() -> None:
    # In the middle of the script, where commits are of acks.
    stops = [Stop(nth, "pwrite64") for nth in (80, 100)]
    done = kill_at(12, stops, program("support.faults.broken.early_answers:main"))
    assert any("although its ack was confirmed" in text for text in done.violations)
