"""State directories whose file system, journal or log goes away under a broker; each way once."""

import pytest
from support.faults.loop_disk import hindrance
from support.faults.lost_places import FILES, WAYS, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


def test_broker_whose_place_is_lost_ends_and_has_said_nothing_that_is_not_kept(seed: int) -> None:
    done = run(seed, len(WAYS))
    assert done.violations == []
    assert all(done.counts[way] == 1 for way in WAYS)


@pytest.mark.parametrize("way", ["unmounted", *FILES])
def test_broker_that_trusts_its_paths_is_found_out(seed: int, way: str) -> None:
    done = run(seed, 1, call="support.faults.broken.trusting:main", ways=[way])
    assert any("the broker has gone on" in violation for violation in done.violations)
