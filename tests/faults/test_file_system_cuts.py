"""Power cuts of a real file system under a broker at full rate; two of them."""

import pytest
from support.faults.file_system_cuts import run
from support.faults.loop_disk import hindrance

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := hindrance():
        pytest.skip(reason)


def test_power_cut_of_a_real_file_system_loses_nothing_that_was_answered(seed: int) -> None:
    done = run(seed, 2)
    assert done.violations == []
    assert done.counts["cuts"] == 2
    assert done.counts["answers"] > 20


def test_without_a_sync_of_each_commit_jobs_are_lost(seed: int) -> None:
    done = run(seed, 2, "--synchronous", "NORMAL")
    assert any("was acknowledged and is gone" in text for text in done.violations)
