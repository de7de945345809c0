"""What is over its retention leaves listings, `status` and the disk, whatever it was called."""

from pathlib import Path

import pytest
from support.stack import Stack
from support.waiting import wait_until

from stoker import JobSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

QUEUES_A_ROUND = 30
KEPT = 20


ID_BYTES = 400
"""Of an id that is remembered beyond its row, with its two indexes, rounded up."""


def spent(stack: Stack, names: list[str]) -> int:
    """One job in each of these queues, done and forgotten but for the last few; the bytes of a copy then."""
    stack.client.enqueue_many([JobSpec("nothing", queue=name) for name in names])
    wait_until(lambda: is_forgotten(stack), "the retention has passed", deadline_s=60)
    return stack.client.snapshot(names[0]).size_bytes


def is_forgotten(stack: Stack) -> bool:
    totals = stack.client.status()["totals"]
    return not totals["ready"] and not totals["leased"] and totals["done"] <= KEPT


def test_queues_used_once_leave_nothing_behind(short_directory: Path, pytestconfig: pytest.Config) -> None:
    count = QUEUES_A_ROUND * int(pytestconfig.getoption("--rounds") or 1)
    with Stack(short_directory) as stack:
        stack.start_broker("--done-kept-max", str(KEPT))
        stack.start_pool("ordeals:app", 2)
        before, after = (spent(stack, [f"{half}-{number}" for number in range(count)]) for half in "ab")
        queues = stack.client.status()["queues"]
        assert 0 < len(queues) <= KEPT
        assert not any(name.startswith("a-") for name in queues)
        assert len(list(stack.client.jobs())) <= KEPT
        # Of the second half nothing but its ids is more than there was of the first.
        assert after <= before + ID_BYTES * count
