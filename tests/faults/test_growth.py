"""A little churn: nothing grows that must not, and a broker that hoards is found out."""

from pathlib import Path

import pytest
from support.faults.backlog import backlog
from support.faults.growth import growth
from support.journals import an_image, load, stored

from stoker.broker.core.effects import Changes
from stoker.broker.sqlite import SqliteJournal
from stoker.proto import limits

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SECONDS = 6
JOBS = 4000
ROUNDS = 4
SCHEDULED = 2_000
BACKLOG = 5_000


def test_nothing_grows_that_must_not(seed: int) -> None:
    tally = growth(seed, SECONDS, scheduled=SCHEDULED)
    assert tally.violations == []
    assert tally.counts["jobs"] > 0


def test_backlog_is_taken_in_survives_a_restart_and_is_worked_off(seed: int) -> None:
    tally = backlog(seed, BACKLOG)
    assert tally.violations == []
    assert tally.counts["jobs"] == BACKLOG
    assert tally.counts["recovery_ms"] > 0


def test_broker_that_hoards_is_found_out() -> None:
    found = " ".join(growth(1, SECONDS, "support.faults.broken.hoarder:main", SCHEDULED).violations)
    assert "memory grew" in found and "descriptors grew" in found and "the log grew" in found


def test_pages_of_deleted_jobs_are_used_again(tmp_path: Path) -> None:
    """The file never becomes smaller: it has what it once needed at most, and that is enough again."""
    path = tmp_path / "journal.db"
    journal = SqliteJournal(str(path), wal_bytes_checkpoint=1)
    load(journal)
    sizes: list[int] = []
    for first in range(0, ROUNDS * JOBS, JOBS):
        numbers = range(first + 1, first + JOBS + 1)
        journal.commit(stored(*(an_image(number) for number in numbers)))
        journal.commit(Changes(deleted=[(number, f"job-{number}", bytes(16), 0) for number in numbers]))
        assert journal.checkpoint_if_due()
        sizes.append(path.stat().st_size)
    journal.close()
    assert max(sizes) > limits.MIB / 2
    assert path.stat().st_size <= max(sizes[:2]) * 1.05
