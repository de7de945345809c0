"""A job that stops its own process: that is killed before the job is tried again, and charged once."""

import os

import pytest
from support.stack import Stack
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_job_that_stops_its_process_is_tried_again_when_that_is_gone(stack: Stack) -> None:
    stack.start_pool("ordeals:app", 2)
    marks = stack.directory / "marks"
    job = stack.client.enqueue("stop_itself", [str(marks)])
    assert job.wait(timeout_s=40).result == 2
    (_, first), (_, second) = (line.split() for line in marks.read_text().splitlines())
    assert first != second and not os.path.exists(f"/proc/{first}")
    history = stack.client.show(job.id)["history"]
    assert [attempt["outcome"] for attempt in history] == ["lost", "ok"]
    assert "lease ran out" in history[0]["reason"] or "heartbeat" in history[0]["reason"]
    assert stack.client.show(job.id)["charged"] == 1
    wait_until(lambda: stack.idle_count() == 2, "the pool is whole again", deadline_s=20)
