"""A snapshot is on the disk before it has its name, and its name before anybody hears of it.

What SQLite asks of the disk does not show here, since the copy is synced by this program itself; so the one call
that makes anything durable is recorded, and carried out.
"""

import os
from pathlib import Path

import pytest
from support.journals import an_image, load, stored

from stoker.broker.sqlite import SqliteJournal


class Syncs:
    """In place of `os.fsync`: what each call was for, and whether the copy had its name by then."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._sync = os.fsync
        self.seen: list[tuple[int, bool]] = []

    def __call__(self, fd: int) -> None:
        self._sync(fd)
        self.seen.append((os.fstat(fd).st_ino, self._copy.exists()))


def test_copy_is_synced_before_it_has_its_name_and_the_directory_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    load(journal)
    journal.commit(stored(an_image(1)))
    copy = tmp_path / "copies" / "copy.db"
    copy.parent.mkdir()
    syncs = Syncs(copy)
    monkeypatch.setattr(os, "fsync", syncs)
    journal.snapshot(str(copy))
    journal.close()
    assert syncs.seen == [(copy.stat().st_ino, False), (copy.parent.stat().st_ino, True)]
