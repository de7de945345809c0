"""System calls on the journal of a real broker that fail; a handful, chosen so that each kind is met."""

import errno

import pytest
from support.faults.gate import hindrance
from support.faults.place import program
from support.faults.spawner import Spawner
from support.faults.storage_errors import Fault, run, try_fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


FATAL = (
    Fault("pwrite64", 200, errno.EIO, for_ever=False),
    Fault("pwrite64", 120, errno.EROFS, for_ever=True),
    Fault("fdatasync", 40, errno.EIO, for_ever=False),
    Fault("fdatasync", 30, errno.ENOSPC, for_ever=False),
)


def test_error_of_the_disk_ends_the_broker_at_once_and_loses_nothing() -> None:
    with Spawner() as spawner:
        ends = {fault: try_fault(fault, spawner, program()) for fault in FATAL}
    assert [end for end, _ in ends.values()] == ["ended with 74"] * len(FATAL)
    assert {str(fault): found for fault, (_, found) in ends.items() if found} == {}


@pytest.mark.parametrize("for_ever", [False, True])
def test_full_disk_holds_the_broker_up_at_most(for_ever: bool) -> None:
    with Spawner() as spawner:
        found = try_fault(Fault("pwrite64", 200, errno.EDQUOT, for_ever), spawner, program())
    assert found == ("held up", [])


def test_nothing_is_lost_whatever_fails(seed: int) -> None:
    done = run(seed, 3)
    assert done.violations == []
    assert done.counts["faults"] == 3


def test_broker_that_tries_a_failed_sync_again_is_found_out() -> None:
    with Spawner() as spawner:
        fault = Fault("fdatasync", 30, errno.EIO, for_ever=False)
        _, found = try_fault(fault, spawner, program("support.faults.broken.forgiving:main"))
    assert found == ["not within 5.0 s: it ends"]
