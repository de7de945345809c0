"""`current_job()`: there while a job runs, in every thread of its handler, and nowhere else."""

import threading
import time
from collections.abc import Iterator

import pytest

from stoker import CurrentJob, current_job
from stoker.worker.context import set_current_job

JOB = CurrentJob("job-1", 2, (1, 7), "send", "mail", {}, time.monotonic() + 60)


@pytest.fixture
def running() -> Iterator[None]:
    set_current_job(JOB)
    yield
    set_current_job(None)


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(LookupError, match="no job is running"):
        current_job()


@pytest.mark.usefixtures("running")
def test_handler_sees_its_job_in_every_thread() -> None:
    seen: list[CurrentJob] = []
    thread = threading.Thread(target=lambda: seen.append(current_job()))
    thread.start()
    thread.join()
    assert seen == [current_job()] == [JOB]


def test_remaining_time_counts_down_to_the_deadline() -> None:
    assert 59 < JOB._replace(deadline=time.monotonic() + 60).remaining_s() <= 60
    assert JOB._replace(deadline=time.monotonic() - 5).remaining_s() < -4.9
