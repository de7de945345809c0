"""Handing jobs out: who gets which, what holds them back, and what the end of an attempt does."""

from typing import Any

import pytest
from support.core_builders import House, rules_of

from stoker.broker.core import events as ev
from stoker.broker.core.leasing import shortened
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w


def test_job_is_pushed_with_all_that_its_handler_needs() -> None:
    house = House()
    worker = house.worker()
    number = house.enqueue("a", time_limit_ms=700, lease_ms=900, headers={"trace": "1"}).number
    enqueued_at_ms = house.clock.now().wall_ms
    expected = w.Job([1, 1], "a", number, "send", "default", 1, b"", 700, 900, enqueued_at_ms, {"trace": "1"})
    assert house.pushed(w.Job) == [(worker.connection, expected)]


def test_lease_is_on_disk_with_its_holder() -> None:
    house = House()
    house.worker()
    house.enqueue("a")
    row = house.row("a")
    assert (row.state, row.token, row.attempt) == ("leased", (1, 1), 1)
    assert row.worker == "boot-id-1/1/100/5/nonce-w1"


def test_ended_lease_leaves_no_holder() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.ack(worker, "a")
    row = house.row("a")
    assert (row.worker, row.ticket, row.leased_at_ms) == ("", b"", 0)


# --- which job ----------------------------------------------------------------------------------------------


def test_free_worker_gets_the_most_urgent_job() -> None:
    house = House()
    for id, priority in (("late", 5), ("first", -5), ("second", -5)):
        house.enqueue(id, priority=priority)
    house.worker(slots=3)
    assert house.granted() == ["first", "second", "late"]


def test_queues_take_turns() -> None:
    house = House()
    for number in range(3):
        house.enqueue(f"mail-{number}", queue="mail")
    house.enqueue("video-0", queue="video")
    house.worker(slots=4)
    assert house.granted() == ["mail-0", "video-0", "mail-1", "mail-2"]


def test_job_of_a_kind_that_nobody_knows_stands_in_nobodys_way() -> None:
    house = House()
    house.enqueue("unknown", "other")
    house.enqueue("known")
    house.worker()
    assert house.granted() == ["known"]


def test_worker_gets_no_more_jobs_than_it_has_slots() -> None:
    house = House()
    for number in range(5):
        house.enqueue(f"job-{number}")
    house.worker(slots=3)
    assert house.granted() == ["job-0", "job-1", "job-2"]


def test_worker_without_slots_gets_nothing() -> None:
    house = House()
    house.worker(slots=0)
    house.enqueue("a")
    assert house.granted() == []


@pytest.mark.parametrize("reason", ["released", "shutdown", "not_started"])
def test_returned_job_does_not_pass_by_more_urgent_ones(reason: str) -> None:
    house = House()
    worker = house.worker()
    house.enqueue("running")
    house.enqueue("urgent", priority=-1)
    house.ok(worker.connection, w.Release(house.token("running"), reason))
    assert house.granted() == ["running", "urgent"]


def test_returned_job_keeps_its_place() -> None:
    house = House()
    worker = house.worker()
    for id in "abc":
        house.enqueue(id)
    house.ok(worker.connection, w.Release(house.token("a"), "released"))
    assert house.granted() == ["a", "a"]


def test_kicked_job_goes_to_the_end() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", attempts_max=1)
    house.enqueue("b")
    house.nack(worker, "a")
    house.enqueue("c")
    house.ok(house.client, m.Kick("a"))
    house.ack(worker, "b")
    house.ack(worker, "c")
    assert house.granted() == ["a", "b", "c", "a"]


# --- which worker --------------------------------------------------------------------------------------------


def test_worker_that_is_idle_longest_gets_the_job() -> None:
    house = House()
    first, second = house.worker("nonce-w1"), house.worker("nonce-w2")
    for id in "abc":
        house.enqueue(id)
        holder = house.pushed(w.Job)[0][0]
        house.ack(first if holder == first.connection else second, id)
    assert house.show("c")["history"][0]["worker"].endswith("nonce-w1")


def test_longest_idle_counts_across_workers_of_different_kinds() -> None:
    house = House()
    house.worker("nonce-w1", kinds=["send", "other"])
    house.worker("nonce-w2", kinds=["send"])
    house.enqueue("a")
    house.enqueue("b")
    assert [house.row(id).worker[-2:] for id in "ab"] == ["w1", "w2"]


def test_longest_idle_counts_whichever_kinds_were_idle_first() -> None:
    house = House()
    house.worker("nonce-w1", kinds=["send", "other"])
    house.worker("nonce-w2", kinds=["send"])
    house.worker("nonce-w3", kinds=["send", "other"])
    for id in "abc":
        house.enqueue(id)
    assert [house.row(id).worker[-2:] for id in "abc"] == ["w1", "w2", "w3"]


def test_jobs_are_spread_over_workers_of_many_slots() -> None:
    house = House()
    house.worker("nonce-w1", slots=2)
    house.worker("nonce-w2", slots=2)
    for id in "abcd":
        house.enqueue(id)
    assert [house.row(id).worker[-2:] for id in "abcd"] == ["w1", "w2", "w1", "w2"]


# --- held back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["default", None])
def test_paused_jobs_are_handed_out_after_the_resume(queue: str | None) -> None:
    house = House()
    house.worker()
    house.ok(house.client, m.Pause(queue))
    house.enqueue("a")
    assert house.granted() == []
    house.ok(house.client, m.Resume(queue))
    assert house.granted() == ["a"]


def test_worker_that_comes_during_a_pause_waits() -> None:
    house = House()
    house.enqueue("a")
    house.enqueue("b", queue="mail")
    house.ok(house.client, m.Pause("default"))
    house.worker(slots=2)
    assert house.granted() == ["b"]


def test_draining_broker_hands_out_nothing_until_resume() -> None:
    house = House()
    worker = house.worker()
    house.ok(house.client, m.Drain())
    house.enqueue("a")
    assert house.granted() == []
    house.ok(house.client, m.Resume())
    house.ack(worker, "a")
    assert house.state("a") == "done"


def test_stopping_broker_hands_out_nothing() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.enqueue("b")
    house.event(ev.StopRequested())
    house.ack(worker, "a")
    assert house.granted() == ["a"]


def test_resume_of_one_queue_leaves_the_pause_of_all() -> None:
    house = House()
    house.worker()
    house.ok(house.client, m.Pause())
    house.enqueue("a")
    house.ok(house.client, m.Resume("default"))
    assert house.granted() == []


def test_resume_of_all_leaves_the_pause_of_one_queue() -> None:
    house = House()
    house.worker()
    house.ok(house.client, m.Pause("default"))
    house.enqueue("a")
    house.ok(house.client, m.Resume())
    assert house.granted() == []


def test_pause_survives_a_restart_and_a_drain_does_not() -> None:
    house = House()
    house.ok(house.client, m.Pause("mail"))
    house.ok(house.client, m.Pause())
    house.ok(house.client, m.Drain())
    house.restart()
    status = house.status()
    assert (status["paused_all"], status["draining"], status["queues"]["mail"]["paused"]) == (
        True,
        False,
        True,
    )


# --- expiry at the hand-out ---------------------------------------------------------------------------------------


def test_job_whose_expiry_has_come_is_not_handed_out_even_before_the_timer() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.enqueue("b", expires_ms=100)
    house.enqueue("c")
    house.clock.pass_time(100)
    house.ack(worker, "a")
    assert (house.granted(), house.state("b")) == (["a", "c"], "dead")


def test_job_that_comes_back_after_its_expiry_is_dead() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", expires_ms=100)
    house.clock.pass_time(200)
    house.ok(worker.connection, w.Release(house.token("a"), "released"))
    assert house.state("a") == "dead"
    assert house.show("a")["reason"] == "expired: attempt 2 did not start within 100 ms"


def test_expiry_does_not_touch_a_running_job() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", expires_ms=100)
    house.pass_time(200)
    house.ack(worker, "a")
    assert house.state("a") == "done"


# --- ends ------------------------------------------------------------------------------------------------------------


def test_outcome_of_an_attempt_is_kept_with_all_that_is_known() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.clock.pass_time(30)
    house.nack(worker, "a", report="Traceback", duration_ms=25)
    (row,) = house.show("a")["history"]
    kept = {name: row[name] for name in ("attempt", "outcome", "reason", "report", "duration_ms", "signal")}
    assert kept == {
        "attempt": 1,
        "outcome": "error",
        "reason": "no such host",
        "report": "Traceback",
        "duration_ms": 25,
        "signal": None,
    }


def test_duration_that_nobody_told_is_measured() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.clock.pass_time(30)
    house.ack(worker, "a", b"result")
    (row,) = house.show("a")["history"]
    assert (row["duration_ms"], house.show("a")["result"]) == (30, b"result")


def test_measured_duration_is_never_negative() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.clock.set_wall(-5000)
    house.ack(worker, "a")
    assert house.show("a")["history"][0]["duration_ms"] == 0


def test_failed_job_runs_again_after_its_backoff() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", backoff_ms=500)
    house.nack(worker, "a")
    assert (house.state("a"), house.show("a")["reason"]) == ("scheduled", "error: no such host")
    house.pass_time(500)
    assert (house.granted(), house.show("a")["attempt"]) == (["a", "a"], 2)


def test_backoff_has_jitter() -> None:
    house = House(chance=0.5)
    worker = house.worker()
    house.enqueue("a", backoff_ms=1000)
    house.nack(worker, "a")
    assert house.show("a")["due_in_ms"] == 950


def test_job_that_was_never_started_is_no_delivery() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.ok(house.client, m.Pause())
    house.ok(worker.connection, w.Release(house.token("a"), "not_started"))
    row = house.row("a")
    assert (row.state, row.attempt, row.charged, row.releases) == ("ready", 0, 0, 0)
    assert house.outcomes("a") == []


def test_tenth_release_in_a_row_makes_the_job_dead() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    for _ in range(limits.RELEASES_IN_A_ROW_MAX):
        house.ok(worker.connection, w.Release(house.token("a"), "released"))
    assert (house.state("a"), house.row("a").charged) == ("dead", 0)


def test_finished_attempt_ends_the_row_of_releases() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", backoff_ms=1)
    ends: list[Any] = [lambda: w.Release(house.token("a"), "released")] * 9
    for end in [*ends, lambda: w.Nack(house.token("a"), "error", "why"), *ends]:
        house.ok(worker.connection, end())
        house.pass_time(1)
    assert house.state("a") == "leased"


def test_kick_gives_a_job_all_its_attempts_again() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", attempts_max=1)
    house.nack(worker, "a")
    house.ok(house.client, m.Kick("a"))
    row = house.row("a")
    assert (row.state, row.attempt, row.charged, row.crashes, row.releases) == ("leased", 2, 0, 0, 0)
    assert house.outcomes("a") == ["error"]


def test_kick_forgets_how_often_a_job_crashed() -> None:
    house = House()
    house.enqueue("a", crashes_max=1)
    house.die(house.worker().connection)
    house.ok(house.client, m.Kick("a"))
    assert (house.state("a"), house.row("a").crashes) == ("ready", 0)


def test_kick_forgets_how_often_a_job_was_given_back() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    for _ in range(limits.RELEASES_IN_A_ROW_MAX):
        house.ok(worker.connection, w.Release(house.token("a"), "released"))
    house.ok(house.client, m.Kick("a"))
    assert house.row("a").releases == 0


def test_tokens_grow_over_restarts() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.enqueue("b")
    house.ack(worker, "a")
    first = house.token("b")
    house.restart()
    house.worker("nonce-w2")
    house.client = house.connect()
    house.enqueue("c")
    assert (first, house.token("c")) == ([1, 2], [2, 1])


def test_freed_room_is_kept_by_the_limit_of_the_queue() -> None:
    house = House(rules_of(jobs_max=2))
    worker = house.worker()
    house.enqueue("a")
    house.enqueue("b")
    house.nack(worker, "a")
    assert house.refused(house.client, m.Enqueue("c", "send", b"")) == "queue_full"


def test_reason_is_cut_to_its_limit_at_a_whole_character() -> None:
    assert shortened("short") == "short"
    assert shortened("ä" * 3000) == "ä" * (limits.REASON_BYTES_MAX // 2)
    assert shortened("x" + "ä" * 3000) == "x" + "ä" * (limits.REASON_BYTES_MAX // 2 - 1)
