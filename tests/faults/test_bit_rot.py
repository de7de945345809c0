"""Bits that change by themselves; and builds that would not see it."""

import pytest
from support.faults.bit_rot import HARNESS

from stoker.broker.sqlite import loading, rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

FLIPS = 250
FLIPS_BROKEN = 300


def zero(*_: object) -> int:
    return 0


def nothing(*_: object) -> None:
    """In place of a look at the log."""


def test_no_changed_value_is_taken_for_what_was_stored(seed: int) -> None:
    tally = HARNESS.run(seed, FLIPS)
    assert tally.violations == []
    assert tally.counts["flips"] == FLIPS
    assert tally.counts["found"] > FLIPS // 4


def test_build_without_checksums_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "crc32", zero)
    assert [fault for fault in HARNESS.run(1, FLIPS_BROKEN).violations if "of journal.db:" in fault]


def test_build_that_does_not_look_at_the_log_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "read_log", nothing)
    assert [fault for fault in HARNESS.run(1, FLIPS_BROKEN).violations if "of journal.db-wal:" in fault]


def test_build_that_does_not_look_at_the_whole_file_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "refuse_damage", nothing)
    assert [fault for fault in HARNESS.run(1, FLIPS_BROKEN).violations if "of journal.db:" in fault]
