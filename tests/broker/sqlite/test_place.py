"""A journal whose files are removed or replaced under it: nothing is told that nobody could find again."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.journals import an_image, load, stored

from stoker.broker.journal import JournalBrokenError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.journal import PLACE_S
from stoker.broker.whereabouts import JournalLostError


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


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
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
