"""Across a reboot a wait goes on by the wall clock, and never longer than it was; and limits hold as before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journals import a_job
from support.lockstep import Lockstep

from stoker.broker.core.job import Job, image
from stoker.broker.core.rules import Rules
from stoker.broker.journal import Recovered, Start
from stoker.broker.recovery import rebase, rebase_jobs
from stoker.proto.messages import Cancel, Drop, Enqueue, Enqueued, Refusal
from stoker.proto.model import State

DAY_MS = 86_400_000
OLD = Start(epoch=1, boot_id="boot-1", boot_ms=5_000, wall_ms=1_000_000)


def this(wall_passed_ms: int, *, boot_id: str = "boot-2", boot_ms: int = 70) -> Start:
    return Start(epoch=2, boot_id=boot_id, boot_ms=boot_ms, wall_ms=OLD.wall_ms + wall_passed_ms)


def a_waiting_job(**fields: Any) -> Job:
    """Made when its broker started, due a minute later."""
    given: dict[str, Any] = {
        "state": State.SCHEDULED,
        "created_boot_ms": OLD.boot_ms,
        "due_boot_ms": OLD.boot_ms + 60_000,
        "delay_ms": 60_000,
    }
    return a_job(1, **{**given, **fields})


def rebased(job: Job, start: Start) -> Job:
    rebase(job, {OLD.epoch: OLD, start.epoch: start}, start)
    return job


def a_job_with_a_past(**fields: Any) -> Job:
    """No field of it has the value of a new job."""
    return a_waiting_job(
        attempt=5,
        charged=2,
        crashes=1,
        releases=3,
        token_epoch=1,
        token_counter=9,
        worker="w",
        ticket=b"ticket",
        supervisor="s",
        leased_at_ms=7,
        cancelling=True,
        suspect=True,
        outcome="crash",
        reason="why",
        expires_boot_ms=OLD.boot_ms + 90_000,
        expires_ms=90_000,
        **fields,
    )


def test_within_one_boot_only_the_epoch_changes() -> None:
    job = rebased(a_job_with_a_past(), this(99_999_999, boot_id="boot-1", boot_ms=6_000))
    assert image(job) == image(a_job_with_a_past(epoch=2))


@pytest.mark.parametrize(
    ("wall_passed_ms", "left_ms"),
    [
        (0, 60_000),
        (45_000, 15_000),
        (60_000, 0),
        (5 * 365 * DAY_MS, 0),
        (-1, 60_000),
        (-5 * 365 * DAY_MS, 60_000),
    ],
)
def test_wait_goes_on_where_it_was_and_is_never_longer_than_it_was(wall_passed_ms: int, left_ms: int) -> None:
    job = rebased(a_waiting_job(), this(wall_passed_ms))
    assert job.due_boot_ms == 70 + left_ms


@pytest.mark.parametrize(
    ("wall_passed_ms", "left_ms"), [(0, 9_000), (4_000, 5_000), (10_000, 0), (-50, 9_000)]
)
def test_expiry_is_carried_over_alike(wall_passed_ms: int, left_ms: int) -> None:
    job = a_waiting_job(expires_boot_ms=OLD.boot_ms + 9_000, expires_ms=9_000)
    assert rebased(job, this(wall_passed_ms)).expires_boot_ms == 70 + left_ms


def test_job_without_wait_or_expiry_gets_none() -> None:
    job = rebased(a_waiting_job(due_boot_ms=0, delay_ms=0), this(5_000))
    assert (job.due_boot_ms, job.expires_boot_ms) == (0, 0)


def test_date_follows_the_wall_clock_and_is_left_alone() -> None:
    job = a_waiting_job(due_boot_ms=0, delay_ms=0, run_at_ms=123_456)
    assert rebased(job, this(5_000)).run_at_ms == 123_456


@pytest.mark.parametrize(("wall_passed_ms", "age_ms"), [(0, 0), (30_000, 30_000), (-30_000, 0)])
def test_age_goes_on_by_the_wall_clock_and_is_never_negative(wall_passed_ms: int, age_ms: int) -> None:
    job = rebased(a_waiting_job(), this(wall_passed_ms))
    assert 70 - job.created_boot_ms == age_ms


def test_all_recovered_jobs_are_moved() -> None:
    start = this(1_000)
    jobs = [a_job(1), a_job(2, epoch=2)]
    recovered = Recovered(
        epoch=2,
        sequence=2,
        starts={1: OLD, 2: start},
        jobs=jobs,
        finished_counts={},
        kinds={},
        paused=frozenset(),
        ids_kept=0,
    )
    assert [job.epoch for job in rebase_jobs(recovered)] == [2, 2]


@given(
    delay_ms=st.integers(0, 10**9),
    made_after_ms=st.integers(0, 10**9),
    wall_passed_ms=st.integers(-(10**11), 10**11),
    boot_ms=st.integers(0, 10**9),
)
def test_no_clock_makes_a_wait_longer_than_it_was_stored(
    delay_ms: int, made_after_ms: int, wall_passed_ms: int, boot_ms: int
) -> None:
    job = a_waiting_job(due_boot_ms=OLD.boot_ms + made_after_ms + delay_ms, delay_ms=delay_ms)
    start = this(wall_passed_ms, boot_ms=boot_ms)
    assert 0 <= rebased(job, start).due_boot_ms - boot_ms <= delay_ms


def test_ids_that_were_remembered_before_a_restart_count_against_their_limit() -> None:
    broker = Lockstep(Rules(ids_kept_max=2), lambda: 0.5)
    client = broker.connect()
    for id in ("a", "b"):
        for message in (Enqueue(id, "send", b""), Cancel(id), Drop(id)):
            assert not isinstance(broker.ask(client, message), Refusal)
    broker.restart()
    client = broker.connect()
    refused = broker.ask(client, Enqueue("c", "send", b""))
    assert isinstance(refused, Refusal) and refused.code == "ids_full"


def test_as_many_ids_as_were_free_before_a_restart_are_free_after_it() -> None:
    broker = Lockstep(Rules(ids_kept_max=2), lambda: 0.5)
    client = broker.connect()
    for message in (Enqueue("a", "send", b""), Cancel("a"), Drop("a")):
        broker.ask(client, message)
    broker.restart()
    assert isinstance(broker.ask(broker.connect(), Enqueue("b", "send", b"")), Enqueued)
