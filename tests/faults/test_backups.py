"""A few snapshots under load, and why a plain copy of the file is none."""

import pytest
from support.faults.backups import backups

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BACKUPS = 5


def test_every_backup_holds_what_was_answered_before(seed: int) -> None:
    tally = backups(seed, BACKUPS)
    assert tally.violations == []
    assert tally.counts["backups"] == BACKUPS


def test_plain_copy_of_the_file_lacks_what_was_answered() -> None:
    assert backups(1, 1, "support.faults.broken.stale_copies:main").violations
