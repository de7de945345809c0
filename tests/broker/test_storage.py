"""The disk, watched: when it counts as full, when no longer, and what the ballast is for."""

import resource
from pathlib import Path

import pytest
from support.journals import BOOT_ID, BOOT_MS, WALL_MS
from support.shell import LogLines

from stoker.broker.core.events import Now
from stoker.broker.files import BALLAST, Ballast
from stoker.broker.journal import JournalFullError, Retention
from stoker.broker.memory import MemoryJournal
from stoker.broker.storage import FULL_LASTS_MS, JOB_BYTES, Storage, Survey
from stoker.broker.whereabouts import JournalLostError

LOW_WATER = 1000


class Bench:
    """A storage that watches a directory, at a time the test sets."""

    def __init__(self, directory: Path) -> None:
        self.ballast = Ballast(str(directory), 4096)
        self.log = LogLines()
        retention = Retention(1000, 10, 1000, 10)
        self.storage = Storage(str(directory), self.ballast, retention, LOW_WATER, self.log)
        self.journal = MemoryJournal()
        self.journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)

    def judge(
        self, mono_ms: int, free_bytes: int, *, has_ballast: bool = True, is_stuck: bool = False
    ) -> object:
        survey = Survey(free_bytes, has_ballast, 0, {})
        return self.storage.judge(survey, Now(mono_ms, mono_ms, WALL_MS + mono_ms), is_stuck=is_stuck)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_free_space_below_the_mark_is_full_and_said_once(bench: Bench) -> None:
    assert bench.judge(0, LOW_WATER) is None
    assert bench.judge(1, LOW_WATER - 1) is True
    assert bench.judge(2, 0) is None
    assert bench.storage.statistics()["full_since_at_ms"] == WALL_MS + 1


def test_what_was_taken_in_since_the_last_survey_counts_as_gone(bench: Bench) -> None:
    now = Now(1, 1, WALL_MS + 1)
    bench.judge(0, LOW_WATER + 4 * (100 + JOB_BYTES))
    assert not bench.storage.take(100, now)
    assert not bench.storage.take(100, now)
    assert bench.storage.take(100, now)
    assert bench.storage.is_full


def test_survey_has_seen_what_was_taken_in_before_it_was_asked(bench: Bench) -> None:
    now = Now(1, 1, WALL_MS + 1)
    bench.judge(0, LOW_WATER + 4 * (100 + JOB_BYTES))
    bench.storage.take(100, now)
    bench.storage.asked()
    bench.storage.take(100, now)
    bench.judge(2, LOW_WATER + 4 * (100 + JOB_BYTES))
    assert not bench.storage.take(100, now)
    assert bench.storage.take(100, now)


def test_nothing_is_called_full_before_the_first_survey(bench: Bench) -> None:
    assert not bench.storage.take(10**12, Now(1, 1, WALL_MS + 1))


def test_full_ends_when_there_is_room_and_it_has_lasted_a_while(bench: Bench) -> None:
    bench.judge(0, 0)
    assert bench.judge(FULL_LASTS_MS - 1, LOW_WATER) is None
    assert bench.judge(FULL_LASTS_MS, LOW_WATER) is False
    assert not bench.storage.is_full


def test_full_does_not_end_without_the_ballast_or_with_a_batch_that_does_not_fit(bench: Bench) -> None:
    bench.judge(0, 0)
    assert bench.judge(FULL_LASTS_MS, LOW_WATER, has_ballast=False) is None
    assert bench.judge(FULL_LASTS_MS, LOW_WATER, is_stuck=True) is None
    assert bench.storage.is_full


def test_commit_that_did_not_fit_is_full_whatever_the_free_bytes_say(bench: Bench) -> None:
    assert bench.storage.became_full(Now(0, 0, 0)) is True
    assert bench.judge(1, 10**12) is None
    assert bench.storage.is_full


def test_missing_ballast_is_worth_one_line(bench: Bench) -> None:
    for mono_ms in (0, 1000):
        bench.judge(mono_ms, LOW_WATER, has_ballast=False)
    assert [line.split()[0] for line in bench.log.lines] == ["no_ballast"]


def test_survey_fills_the_ballast_and_making_room_gives_it_up(bench: Bench, tmp_path: Path) -> None:
    assert bench.storage.survey(bench.journal, BOOT_MS).has_ballast
    assert (tmp_path / BALLAST).exists()
    bench.storage.make_room(bench.journal)
    assert not (tmp_path / BALLAST).exists()


def test_survey_on_a_full_disk_still_says_how_full_it_is(bench: Bench) -> None:
    class Full(MemoryJournal):
        def forget_ids(self, *, boot_ms: int, limit: int) -> int:
            raise JournalFullError("full")

    journal = Full()
    journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)
    assert bench.storage.survey(journal, BOOT_MS).free_bytes > 0


def test_limit_of_file_sizes_is_a_small_disk(bench: Bench) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, before[1]))
    try:
        survey = bench.storage.survey(bench.journal, BOOT_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert 0 < survey.free_bytes <= 5_000_000


def test_room_that_had_to_be_made_is_not_for_jobs(bench: Bench) -> None:
    bench.judge(0, LOW_WATER * 1000)
    bench.storage.make_room(bench.journal)
    assert bench.storage.take(1, Now(1, 1, WALL_MS + 1))
    assert bench.storage.is_full


def test_survey_looks_first_whether_the_journal_is_where_it_was(bench: Bench, tmp_path: Path) -> None:
    class Lost(MemoryJournal):
        def check_place(self) -> None:
            raise JournalLostError("/data", "is gone")

    with pytest.raises(JournalLostError):
        bench.storage.survey(Lost(), BOOT_MS)
    assert not (tmp_path / BALLAST).exists()
