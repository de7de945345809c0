"""What a running handler says and hears: bounded, never waiting, and only about its own attempt."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stoker import CurrentJob
from stoker.proto import limits, ops
from stoker.proto.work import Progress
from stoker.worker import startpage
from stoker.worker.reporter import PROGRESS_BURST, Reporter, progress_message
from stoker.worker.startpage import StartPage, Token

TOKEN, LATER = (1, 7), (1, 8)


def a_job(reporter: Reporter | None, token: Token = TOKEN) -> CurrentJob:
    return CurrentJob("job-1", 1, token, "send", "mail", {}, time.monotonic() + 60, reporter)


@pytest.fixture
def page() -> Iterator[StartPage]:
    fd = startpage.create()
    page = StartPage(fd)
    os.close(fd)
    yield page
    page.close()


@pytest.fixture
def said() -> list[Progress]:
    return []


@pytest.fixture
def reporter(page: StartPage, said: list[Progress]) -> Reporter:
    reporter = Reporter(said.append, page)
    page.start(0, TOKEN)
    reporter.begin(TOKEN)
    return reporter


def in_s(seconds: float) -> int:
    """An instant of the page's clock."""
    return time.monotonic_ns() // 1_000_000 + round(seconds * 1000)


# --- progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ((40,), (40, 100, "")),
        ((3, 12, "pages"), (3, 12, "pages")),
        ((12.5,), (1250, 10_000, "")),
        ((1.5, 3.0), (5000, 10_000, "")),
        ((0, 0), (0, 0, "")),
        ((0.0, 0.0), (0, 10_000, "")),
        ((None, 100, "indexing"), (None, None, "indexing")),
    ],
)
def test_progress_is_whole_numbers_on_the_wire(
    reporter: Reporter, said: list[Progress], args: Any, fields: Any
) -> None:
    a_job(reporter).progress(*args)
    assert said == [Progress(TOKEN, *fields)]
    ops.build(ops.BY_MESSAGE[Progress], [list(TOKEN), *fields])


@pytest.mark.parametrize("text", ["x" * 10_000, "\ud800", "a\0b", "é" * 300])
def test_any_text_is_made_to_fit(text: str) -> None:
    message = progress_message(TOKEN, None, 100, text)
    assert len(message.text.encode()) <= limits.PROGRESS_TEXT_BYTES_MAX
    ops.build(ops.BY_MESSAGE[Progress], [list(TOKEN), *message[1:]])


@pytest.mark.parametrize(
    ("args", "error", "name"),
    [
        (("40",), TypeError, "done"),
        ((True,), TypeError, "done"),
        ((1, "2"), TypeError, "total"),
        ((-1,), ValueError, "done"),
        ((float("nan"),), ValueError, "done"),
        ((1, float("inf")), ValueError, "total"),
        ((1, 2, b"text"), TypeError, "text"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(
    reporter: Reporter, args: Any, error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=name):
        a_job(reporter).progress(*args)


def test_progress_in_quick_succession_is_dropped_and_later_goes_on(
    page: StartPage, said: list[Progress]
) -> None:
    now = 1000.0
    reporter = Reporter(said.append, page, 0, lambda: now)
    reporter.begin(TOKEN)
    job = a_job(reporter)
    for number in range(1000):
        job.progress(number, 1000)
    assert len(said) == PROGRESS_BURST
    now += 0.3
    job.progress(1000, 1000)
    job.progress(1000, 1000)
    assert [message.done for message in said[PROGRESS_BURST:]] == [1000]


def test_nothing_is_said_for_an_attempt_that_is_over(reporter: Reporter, said: list[Progress]) -> None:
    job = a_job(reporter)
    reporter.end()
    job.progress(1)
    reporter.begin(LATER)
    job.progress(2)
    assert said == []


def test_job_that_was_made_up_can_say_and_hear_nothing() -> None:
    job = a_job(None)
    job.progress(40)
    job.heartbeat(within_s=1)
    assert job.cancelled is False


# --- beats ----------------------------------------------------------------------------------------------


def test_attempt_that_named_no_time_is_never_silent(reporter: Reporter, page: StartPage) -> None:
    a_job(reporter).heartbeat()
    assert list(page.silent(in_s(10**6))) == []


def test_beat_is_due_within_the_time_that_was_named(reporter: Reporter, page: StartPage) -> None:
    a_job(reporter).heartbeat(within_s=30)
    assert list(page.silent(in_s(29))) == []
    assert list(page.silent(in_s(31))) == [TOKEN]


@pytest.mark.parametrize("beat", [CurrentJob.heartbeat, CurrentJob.progress])
def test_each_beat_and_each_progress_begins_the_time_anew(
    reporter: Reporter, page: StartPage, beat: Callable[[CurrentJob], None]
) -> None:
    job = a_job(reporter)
    job.heartbeat(within_s=30)
    page.beat_by(0, TOKEN, in_s(-5))
    beat(job)
    assert list(page.silent(in_s(29))) == []
    assert list(page.silent(in_s(31))) == [TOKEN]


def test_time_can_be_taken_back(reporter: Reporter, page: StartPage) -> None:
    job = a_job(reporter)
    job.heartbeat(within_s=30)
    job.heartbeat(within_s=0)
    job.heartbeat()
    assert list(page.silent(in_s(10**6))) == []


def test_attempt_that_has_ended_owes_no_beat(reporter: Reporter, page: StartPage) -> None:
    job = a_job(reporter)
    job.heartbeat(within_s=30)
    reporter.end()
    assert list(page.silent(in_s(60))) == []
    job.heartbeat(within_s=1)
    assert list(page.silent(in_s(60))) == []


def test_thread_that_an_attempt_left_behind_does_not_beat_for_the_next(
    reporter: Reporter, page: StartPage
) -> None:
    left_behind = a_job(reporter)
    reporter.end()
    page.start(0, LATER)
    reporter.begin(LATER)
    left_behind.heartbeat(within_s=1)
    assert list(page.silent(in_s(60))) == []


def test_attempt_that_is_to_end_cannot_beat_itself_free(reporter: Reporter, page: StartPage) -> None:
    job = a_job(reporter)
    job.heartbeat(within_s=1)
    page.kill(0, TOKEN, "silent", 0)
    job.heartbeat(within_s=60)
    job.heartbeat(within_s=0)
    assert list(page.silent(in_s(2))) == [TOKEN]


@pytest.mark.parametrize("within_s", [-1, 0.5, 10**6, float("nan"), float("inf")])
def test_time_out_of_range_is_refused(reporter: Reporter, within_s: float) -> None:
    with pytest.raises(ValueError, match="within_s must be from 1 to 86400 seconds"):
        a_job(reporter).heartbeat(within_s=within_s)


@pytest.mark.parametrize("within_s", ["1", True])
def test_time_that_is_no_number_is_refused(reporter: Reporter, within_s: Any) -> None:
    with pytest.raises(TypeError, match="within_s"):
        a_job(reporter).heartbeat(within_s=within_s)


# --- whether it shall end ---------------------------------------------------------------------------------


def test_job_is_cancelled_when_its_own_token_is_on_the_page(reporter: Reporter, page: StartPage) -> None:
    job = a_job(reporter)
    page.kill(0, LATER, "cancelled", 0)
    assert job.cancelled is False
    page.kill(0, TOKEN, "timeout", 0)
    assert job.cancelled is True
