"""What only the journal in memory has: crashes and failures on request."""

import pytest
from support.journals import an_image, load, stored

from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.memory import MemoryJournal


@pytest.fixture
def journal() -> MemoryJournal:
    journal = MemoryJournal()
    load(journal)
    return journal


def numbers_after_crash(journal: MemoryJournal) -> list[int]:
    return [job.number for job in load(journal.crash()).jobs]


def test_what_follows_a_crash_shares_nothing_with_what_was_before(journal: MemoryJournal) -> None:
    journal.commit(stored(an_image(1)))
    after = journal.crash()
    journal.commit(stored(an_image(2)))
    assert [job.number for job in load(after).jobs] == [1]
    assert numbers_after_crash(journal) == [1, 2]


def test_loaded_jobs_are_the_callers_own(journal: MemoryJournal) -> None:
    journal.commit(stored(an_image(1)))
    job = journal.find("job-1").job
    assert job is not None
    job.queue = "changed"
    assert [job.queue for job in load(journal.crash()).jobs] == ["mail"]


def test_asked_for_full_disk_comes_at_its_commit_and_once(journal: MemoryJournal) -> None:
    journal.fail_commit(2, JournalFullError)
    journal.commit(stored(an_image(1)))
    with pytest.raises(JournalFullError):
        journal.commit(stored(an_image(2)))
    assert numbers_after_crash(journal) == [1]
    journal.commit(stored(an_image(2)))
    assert numbers_after_crash(journal) == [1, 2]


@pytest.mark.parametrize(("stored_too", "numbers"), [(False, []), (True, [1])])
def test_asked_for_break_is_for_good(journal: MemoryJournal, stored_too: bool, numbers: list[int]) -> None:
    journal.fail_commit(1, JournalBrokenError, stored=stored_too)
    with pytest.raises(JournalBrokenError):
        journal.commit(stored(an_image(1)))
    with pytest.raises(JournalBrokenError):
        journal.find("job-1")
    assert numbers_after_crash(journal) == numbers
