"""A journal whose files are removed, replaced, cut or written over under it: nothing is told that nobody could find again."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
from support.journals import an_image, load, stored

from stoker.broker.core.effects import Changes
from stoker.broker.journal import JournalBrokenError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.journal import PLACE_S
from stoker.broker.whereabouts import GONE, JournalLostError


class Bench:
    """A loaded journal whose clock the test sets."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "journal.db"
        self.log = directory / "journal.db-wal"
        self.now_s = 1.0
        self.journal = SqliteJournal(
            str(self.file), wal_bytes_checkpoint=40_000, monotonic_s=lambda: self.now_s
        )
        load(self.journal)

    def commit(self, number: int) -> None:
        self.journal.commit(stored(an_image(number)))

    def overwrite(self, content: bytes, offset: int = 0) -> None:
        """The database, in place."""
        with self.file.open("r+b") as file:
            file.seek(offset)
            file.write(content)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    with suppress(JournalLostError):
        bench.journal.close()


LOSSES: dict[str, Callable[[Bench], object]] = {
    "file moved": lambda bench: bench.file.rename(f"{bench.file}.moved"),
    "log moved": lambda bench: bench.log.rename(f"{bench.log}.moved"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_commit_into_files_that_are_lost_fails_and_is_the_last(bench: Bench, loss: str) -> None:
    bench.commit(1)
    LOSSES[loss](bench)
    bench.now_s += PLACE_S
    with pytest.raises(JournalLostError):
        bench.commit(2)
    with pytest.raises(JournalBrokenError, match="closed or broken"):
        bench.commit(3)


def test_busy_journal_looks_once_in_a_while_and_a_survey_always(bench: Bench) -> None:
    bench.commit(1)
    bench.log.unlink()
    bench.now_s += PLACE_S / 2
    bench.commit(2)
    with pytest.raises(JournalLostError):
        bench.journal.check_place()


def test_log_that_is_folded_in_and_begun_anew_is_the_same(bench: Bench) -> None:
    for number in range(1, 40):
        bench.now_s += PLACE_S
        bench.commit(number)
        bench.journal.checkpoint_if_due()
    assert bench.journal.statistics()["commits"] == 39


def test_closing_a_lost_journal_says_so_and_removes_nobody_elses_log(bench: Bench) -> None:
    bench.commit(1)
    shutil.copy2(bench.log, f"{bench.log}.copy")
    Path(f"{bench.log}.copy").rename(bench.log)
    content = bench.log.read_bytes()
    with pytest.raises(JournalLostError):
        bench.journal.close()
    assert bench.log.read_bytes() == content


def test_journal_that_was_never_lost_closes_without_a_log(bench: Bench) -> None:
    bench.commit(1)
    bench.journal.close()
    assert not bench.log.exists()


def fold_in(bench: Bench) -> None:
    """Commit next to nothing until it is due: the database stays as long as it is."""
    while not bench.journal.checkpoint_if_due():
        bench.journal.commit(Changes(sequence=1000))


def grow(bench: Bench) -> None:
    """Store more than a page of everything, so that neither the first page nor the last is that of `meta`."""
    bench.journal.commit(stored(*map(an_image, range(1, 100))))
    fold_in(bench)


DAMAGES: dict[str, Callable[[Bench], object]] = {
    "log emptied": lambda bench: os.truncate(bench.log, 0),
    # It is longer than what is in it, after a longer one.
    "end of the log cut off": lambda bench: os.truncate(bench.log, 10_000),
    "database emptied": lambda bench: os.truncate(bench.file, 0),
    "end of the database cut off": lambda bench: os.truncate(bench.file, bench.file.stat().st_size - 4096),
    "header written over": lambda bench: bench.overwrite(b"\xff", 24),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_named_and_gone_for_good(bench: Bench, damage: str) -> None:
    grow(bench)
    bench.commit(1000)
    bench.journal.check_place()
    DAMAGES[damage](bench)
    with pytest.raises(JournalLostError, match="was cut short or written over") as caught:
        bench.journal.check_place()
    name = bench.log.name if "log" in damage else bench.file.name
    assert caught.value.files == [(name, GONE)]
    with pytest.raises(JournalBrokenError, match="closed or broken"):
        bench.commit(2)


@pytest.mark.parametrize("bytes_kept", [0, 1000])
def test_log_that_was_cut_and_grew_again_is_damaged(bench: Bench, bytes_kept: int) -> None:
    bench.commit(1)
    bench.journal.check_place()
    os.truncate(bench.log, bytes_kept)
    bench.commit(2)
    bench.commit(3)
    with pytest.raises(JournalLostError):
        bench.journal.check_place()


def test_log_of_a_start_that_stored_nothing_yet_is_looked_at(bench: Bench) -> None:
    os.truncate(bench.log, 0)
    with pytest.raises(JournalLostError):
        bench.journal.close()


def test_older_copy_written_over_the_database_is_damage_even_if_it_is_as_long(bench: Bench) -> None:
    grow(bench)
    content = bench.file.read_bytes()
    fold_in(bench)
    bench.overwrite(content)
    with pytest.raises(JournalLostError):
        bench.journal.check_place()


def test_damage_is_seen_before_the_log_is_folded_in(bench: Bench) -> None:
    bench.commit(1)
    bench.journal.check_place()
    os.truncate(bench.log, 5000)
    # It grows again, and SQLite would fold in the hole.
    for number in range(2, 6):
        bench.commit(number)
    content = bench.file.read_bytes()
    with pytest.raises(JournalLostError):
        bench.journal.checkpoint_if_due()
    assert bench.file.read_bytes() == content


def test_damage_that_sqlite_meets_first_is_the_loss_that_it_is(tmp_path: Path) -> None:
    journal = SqliteJournal(str(tmp_path / "journal.db"))
    load(journal)
    for number in (1, 2):
        # More than SQLite keeps in memory, so that the first has to be read again.
        image = an_image(number)
        journal.commit(attrs.evolve(stored(image), payloads=[(number, bytes(4_000_000))]))
    os.truncate(tmp_path / "journal.db-wal", 100_000)
    with pytest.raises(JournalLostError):
        journal.payload(1)
    journal.close()
