"""Disks that fill up under a broker, in several ways; a few of them."""

from random import Random

import pytest
from support.faults.full_disks import fill_one, hindrance, run
from support.faults.spawner import Spawner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


def test_full_disk_refuses_jobs_takes_every_ack_and_recovers_by_itself(seed: int) -> None:
    done = run(seed, 2)
    assert done.violations == []
    assert done.counts["disks"] == 2


def test_broker_that_keeps_nothing_back_is_found_out() -> None:
    with Spawner() as spawner:
        found = fill_one("jobs", Random(1), spawner, "support.faults.broken.greedy:main")
    assert found != []
