"""The journal thread: order, the two ways back to the loop, and a disk that does not answer."""

import select
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import trio
from support.waiting import wait_until

from stoker.broker.journal import Journal, JournalBrokenError
from stoker.broker.memory import MemoryJournal
from stoker.broker.pace import SHORT_IN_A_ROW, SHORT_S
from stoker.broker.thread import JournalThread, YieldToJournal

pytestmark = pytest.mark.slow


class Answers(list[object]):
    """What came back, in order; errors as they are."""

    def take(self, result: object, error: BaseException | None) -> None:
        self.append(result if error is None else error)


@pytest.fixture
def thread() -> Iterator[JournalThread]:
    thread = JournalThread(MemoryJournal)
    yield thread
    assert thread.stop(5)


def collected(thread: JournalThread, answers: Answers, count: int) -> None:
    """Collect until so many answers are there."""

    def are_there() -> bool:
        thread.collect()
        return len(answers) >= count

    wait_until(are_there, f"{count} answers of the journal thread")


def is_readable(thread: JournalThread, timeout_s: float) -> bool:
    return bool(select.select([thread.fileno()], [], [], timeout_s)[0])


def number_and_thread(number: int, _: Journal) -> tuple[int, str]:
    return number, threading.current_thread().name


def test_work_is_done_in_order_on_one_thread(thread: JournalThread) -> None:
    answers = Answers()
    for number in range(100):
        thread.submit(partial(number_and_thread, number), answers.take)
    collected(thread, answers, 100)
    assert answers == [(number, "journal") for number in range(100)]


@pytest.fixture
def fast(thread: JournalThread) -> JournalThread:
    """A thread that has done enough to know its disk as fast."""
    answers = Answers()
    for number in range(SHORT_IN_A_ROW + 1):
        thread.submit(partial(number_and_thread, number), answers.take, is_small=True)
        collected(thread, answers, number + 1)
    return thread


def small(thread: JournalThread, answers: Answers) -> None:
    thread.submit(partial(number_and_thread, 0), answers.take, is_small=True)


def test_small_work_on_a_fast_disk_is_done_by_the_caller_and_called_back_later(fast: JournalThread) -> None:
    answers = Answers()
    small(fast, answers)
    assert answers == [] and fast.is_busy
    fast.collect()
    assert answers == [(0, threading.current_thread().name)]


def test_small_work_never_passes_what_is_in_flight(fast: JournalThread) -> None:
    answers, gate = Answers(), threading.Event()
    fast.submit(lambda _: gate.wait(5), answers.take)
    small(fast, answers)
    gate.set()
    collected(fast, answers, 2)
    assert answers == [True, (0, "journal")]


def test_small_work_waits_for_the_thread_while_the_disk_is_not_known_as_fast(thread: JournalThread) -> None:
    answers = Answers()
    small(thread, answers)
    collected(thread, answers, 1)
    assert answers == [(0, "journal")]


def test_work_that_is_long_by_itself_says_nothing_of_the_disk(fast: JournalThread) -> None:
    answers = Answers()
    fast.submit(lambda _: threading.Event().wait(2 * SHORT_S), answers.take)
    collected(fast, answers, 1)
    small(fast, answers)
    fast.collect()
    assert answers == [False, (0, threading.current_thread().name)]


def test_small_work_that_fails_is_told_like_any_other(fast: JournalThread) -> None:
    def fails(_: Journal) -> None:
        raise JournalBrokenError("gone")

    answers = Answers()
    fast.submit(fails, answers.take, is_small=True)
    fast.collect()
    assert [type(answer) for answer in answers] == [JournalBrokenError]


def test_callbacks_run_on_the_thread_that_collects(thread: JournalThread) -> None:
    names = Answers()
    thread.submit(lambda _: None, lambda _result, _error: names.append(threading.current_thread().name))
    collected(thread, names, 1)
    assert names == [threading.current_thread().name]


def test_quick_work_is_back_after_a_short_wait(thread: JournalThread) -> None:
    answers = Answers()
    thread.submit(lambda _: 7, answers.take)
    thread.wait(5)
    thread.collect()
    assert answers == [7]


def test_slow_work_wakes_the_loop_by_the_descriptor(thread: JournalThread) -> None:
    gate = threading.Event()
    thread.submit(lambda _: gate.wait(5), Answers().take)
    thread.wait(0.001)
    assert not is_readable(thread, 0)
    gate.set()
    assert is_readable(thread, 5)
    thread.collect()
    thread.drain_wakeup()
    assert not is_readable(thread, 0)


def test_wait_ends_in_time_if_the_disk_does_not_answer(thread: JournalThread) -> None:
    gate = threading.Event()
    thread.submit(lambda _: gate.wait(5), Answers().take)
    thread.wait(0.001)
    thread.collect()
    assert thread.is_busy
    gate.set()


def test_error_is_handed_to_the_callback_and_the_thread_goes_on(thread: JournalThread) -> None:
    def fail(_: Journal) -> None:
        raise JournalBrokenError("broken")

    answers = Answers()
    thread.submit(fail, answers.take)
    thread.submit(lambda _: 7, answers.take)
    collected(thread, answers, 2)
    assert isinstance(answers[0], JournalBrokenError) and answers[1] == 7


def test_journal_that_cannot_be_opened_is_an_error_of_the_first_work() -> None:
    def refuse() -> Journal:
        raise JournalBrokenError("no such disk")

    thread, answers = JournalThread(refuse), Answers()
    thread.submit(lambda _: None, answers.take)
    collected(thread, answers, 1)
    assert isinstance(answers[0], JournalBrokenError)
    assert thread.stop(5)


def test_stop_gives_up_on_a_disk_that_hangs() -> None:
    thread, gate = JournalThread(MemoryJournal), threading.Event()
    thread.submit(lambda _: gate.wait(5), Answers().take)
    assert not thread.stop(0.01)
    gate.set()
    assert thread.stop(5)


@pytest.mark.trio
async def test_loop_that_never_sleeps_lets_the_thread_in(thread: JournalThread) -> None:
    trio.lowlevel.add_instrument(YieldToJournal(thread))
    answers = Answers()

    def count(_: Journal) -> int:
        # Gives the interpreter up many times, as a driver does around each statement.
        for _turn in range(200):
            select.select([], [], [], 0)
        return 7

    thread.submit(count, answers.take)
    with trio.fail_after(2):
        while not answers:
            thread.collect()
            await trio.lowlevel.checkpoint()
    assert answers == [7]
