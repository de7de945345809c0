"""A failed sync drops what it was to write; and a broken build, which takes it for written."""

import apsw
import pytest
from support.faults.lost_pages import CUTS_PER_SEED, HARNESS, run

from stoker.broker.sqlite import loading
from stoker.broker.sqlite.database import Database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SEEDS = 40
SEEDS_BROKEN = 20


def test_nothing_that_was_answered_is_lost_after_a_failed_sync(seed: int) -> None:
    tally = HARNESS.run(seed, SEEDS)
    assert tally.violations == []
    assert tally.counts == {"seeds": SEEDS, "failed syncs": SEEDS, "images": SEEDS * CUTS_PER_SEED}


def nothing(*_: object) -> None:
    """In place of what a broken build leaves out."""


def test_build_that_believes_what_it_reads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Database.checkpoint

    def unless_at_start(database: Database, mode: int) -> tuple[int, int]:
        return (0, 0) if mode == apsw.SQLITE_CHECKPOINT_TRUNCATE else checkpoint(database, mode)

    monkeypatch.setattr(Database, "checkpoint", unless_at_start)
    monkeypatch.setattr(loading, "write_anew", nothing)
    tally = run(1, SEEDS_BROKEN)
    assert [fault for fault in tally.violations if "epoch" in fault or "is refused" in fault]


def test_build_that_folds_in_a_log_without_writing_it_anew_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "write_anew", nothing)
    tally = run(1, SEEDS_BROKEN, 20)
    assert [fault for fault in tally.violations if "no state that was made" in fault or "is refused" in fault]
