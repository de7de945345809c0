"""The start page: what one side stores, the other reads, and nothing else."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker import process, startpage
from stoker.worker.startpage import StartPage


class Sides:
    """The same page as worker and supervisor map it."""

    def __init__(self, slots: int = 2) -> None:
        fd = startpage.create(slots)
        self.worker = StartPage(fd, slots)
        self.supervisor = StartPage(fd, slots)
        os.close(fd)

    def close(self) -> None:
        self.worker.close()
        self.supervisor.close()


@pytest.fixture
def sides() -> Iterator[Sides]:
    sides = Sides()
    yield sides
    sides.close()


def test_new_page_says_nothing(sides: Sides) -> None:
    page = sides.supervisor
    assert (page.came_up, page.finished_count, page.token(0), page.kill_reason(0, (0, 0))) == (
        False,
        0,
        None,
        None,
    )


def test_worker_comes_up_and_is_welcomed_later(sides: Sides) -> None:
    page = sides.supervisor
    sides.worker.say_came_up()
    assert (page.came_up, page.was_welcomed) == (True, False)
    sides.worker.say_welcomed()
    assert (page.came_up, page.was_welcomed) == (True, True)


@given(epoch=st.integers(0, 2**53), counter=st.integers(0, 2**53))
def test_supervisor_reads_the_token_that_the_worker_stored(epoch: int, counter: int) -> None:
    sides = Sides()
    sides.worker.start(0, (epoch, counter))
    assert sides.supervisor.token(0) == (epoch, counter)
    sides.close()


def test_cleared_entry_is_empty(sides: Sides) -> None:
    sides.worker.start(0, (1, 7))
    sides.worker.clear(0)
    assert sides.supervisor.token(0) is None


def test_attempt_that_should_have_beaten_is_silent(sides: Sides) -> None:
    sides.worker.start(1, (1, 7))
    assert list(sides.supervisor.silent(10**15)) == []
    sides.worker.beat_by(1, (1, 7), 5000)
    assert list(sides.supervisor.silent(5000)) == []
    assert list(sides.supervisor.silent(5001)) == [(1, 7)]
    sides.worker.beat_by(1, (1, 7), 6000)
    assert list(sides.supervisor.silent(5001)) == []
    sides.worker.beat_by(1, (1, 7), 0)
    assert list(sides.supervisor.silent(10**15)) == []


def test_beat_of_an_earlier_attempt_is_not_about_the_next(sides: Sides) -> None:
    sides.worker.start(0, (1, 7))
    sides.worker.beat_by(0, (1, 7), 5000)
    sides.worker.clear(0)
    assert list(sides.supervisor.silent(6000)) == []
    sides.worker.start(0, (1, 8))
    sides.worker.beat_by(0, (1, 7), 5000)
    assert list(sides.supervisor.silent(6000)) == []


def test_slots_have_entries_of_their_own(sides: Sides) -> None:
    sides.worker.start(0, (1, 7))
    sides.worker.start(1, (1, 8))
    sides.worker.clear(0)
    assert (sides.supervisor.token(0), sides.supervisor.token(1)) == (None, (1, 8))


@pytest.mark.parametrize("reason", startpage.KILL_REASONS)
def test_worker_reads_why_its_attempt_shall_end(sides: Sides, reason: str) -> None:
    sides.supervisor.kill(0, (3, 9), reason, 5000)
    assert sides.worker.kill_reason(0, (3, 9)) == reason
    assert list(sides.worker.kills()) == [((3, 9), reason, 5000)]


@pytest.mark.parametrize("other", [(3, 8), (2, 9), (9, 3)])
def test_kill_entry_means_nothing_for_another_attempt(sides: Sides, other: tuple[int, int]) -> None:
    sides.supervisor.kill(0, (3, 9), "timeout", 0)
    assert sides.worker.kill_reason(0, other) is None


def test_later_kill_replaces_the_earlier(sides: Sides) -> None:
    sides.supervisor.kill(0, (1, 1), "timeout", 0)
    sides.supervisor.kill(0, (1, 2), "cancelled", 0)
    assert sides.worker.kill_reason(0, (1, 1)) is None
    assert sides.worker.kill_reason(0, (1, 2)) == "cancelled"


def test_kill_entry_leaves_the_token_alone(sides: Sides) -> None:
    sides.worker.start(0, (1, 1))
    sides.supervisor.kill(0, (1, 2), "lost", 0)
    assert sides.supervisor.token(0) == (1, 1)


def test_supervisor_sees_that_the_worker_came_up_and_what_it_finished(sides: Sides) -> None:
    sides.worker.say_came_up()
    sides.worker.count_finished()
    sides.worker.count_finished()
    assert (sides.supervisor.came_up, sides.supervisor.finished_count) == (True, 2)


def test_memory_mark_is_the_slots_own(sides: Sides) -> None:
    sides.worker.start(1, (4, 2))
    sides.worker.mark_memory(1, 2**40)
    assert (sides.supervisor.memory_mark(0), sides.supervisor.memory_mark(1)) == (0, 2**40)
    assert sides.supervisor.tokens() == [(4, 2)]


class ReorderingWords:
    """Words of which a reader sees a store only in part: the epoch changes between its two looks."""

    def __init__(self, words: memoryview, at: int, values: list[int]) -> None:
        self._words, self._at, self._values = words, at, values

    def __getitem__(self, index: int) -> int:
        if index == self._at and self._values:
            return self._values.pop(0)
        return int(self._words[index])


def test_reader_starts_over_when_the_entry_changed_under_it(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides.worker.start(0, (4, 2))
    words = memoryview(bytearray(64)).cast("Q")
    words[4], words[5] = 2, 5
    monkeypatch.setattr(sides.supervisor, "_words", ReorderingWords(words, 5, [9, 0]))
    assert sides.supervisor.token(0) == (4, 2)


# --- jobs ahead ----------------------------------------------------------------------------------------------


@pytest.fixture
def single() -> Iterator[Sides]:
    """A page with one slot."""
    sides = Sides(1)
    yield sides
    sides.close()


def test_nothing_is_recalled_at_first(single: Sides) -> None:
    assert not single.worker.is_recalled((0, 0))


@pytest.mark.parametrize(
    ("token", "is_recalled"), [((3, 7), True), ((3, 8), False), ((2, 99), True), ((4, 1), False)]
)
def test_everything_up_to_a_token_is_recalled(
    single: Sides, token: tuple[int, int], *, is_recalled: bool
) -> None:
    single.supervisor.recall((3, 7))
    assert single.worker.is_recalled(token) is is_recalled


def test_what_is_over_and_unconfirmed_stands_before_what_runs_and_nothing_twice(single: Sides) -> None:
    for place in range(startpage.OVER_MAX):
        single.worker.keep_over(place, (1, place + 1))
    single.worker.start(0, (1, 3))
    expected = [(1, place + 1) for place in range(startpage.OVER_MAX)]
    assert single.supervisor.unconfirmed() == expected
    single.worker.start(0, (1, 99))
    assert single.supervisor.unconfirmed() == [*expected, (1, 99)]
    assert single.supervisor.tokens() == [(1, 99)]


def test_what_is_confirmed_is_over_for_good(single: Sides) -> None:
    single.worker.keep_over(0, (1, 1))
    single.worker.keep_over(1, (1, 2))
    single.worker.drop_over(0)
    assert single.supervisor.unconfirmed() == [(1, 2)]


def test_page_of_several_slots_keeps_nothing_but_what_runs(sides: Sides) -> None:
    sides.worker.start(1, (1, 2))
    assert sides.supervisor.unconfirmed() == [(1, 2)]


def test_fence_is_there_on_this_kernel() -> None:
    assert process.join_fence()
    assert process.fence()
