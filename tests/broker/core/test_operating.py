"""What a person does to jobs and queues by hand."""

from typing import Any

import pytest
from support.core_builders import House, WorkerPeer, rules_of

from stoker.broker.core import events as ev
from stoker.broker.core.operating import kept_until
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.model import Overflow


def in_state(state: str) -> tuple[House, WorkerPeer]:
    """A job `a` in that state, and a raw worker."""
    house = House()
    worker = house.worker(kinds=[] if state == "ready" else ["send"])
    house.enqueue("a", delay_ms=1000 if state == "scheduled" else None)
    if state == "done":
        house.ack(worker, "a")
    elif state == "dead":
        house.nack(worker, "a", "permanent")
    elif state == "cancelled":
        house.cancel("a")
        house.nack(worker, "a", "cancelled")
    assert house.state("a") == state
    return house, worker


# --- cancel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("scheduled", "cancelled"),
        ("ready", "cancelled"),
        ("leased", "cancelling"),
        ("cancelled", "cancelled"),
        ("done", "too_late"),
        ("dead", "too_late"),
    ],
)
def test_cancel_in_every_state(state: str, answer: str) -> None:
    house, _ = in_state(state)
    if answer == "too_late":
        assert house.refused(house.client, m.Cancel("a")) == "too_late"
        assert house.state("a") == state
    else:
        assert house.cancel("a") == answer


def test_cancel_of_a_job_that_never_existed() -> None:
    house = House()
    assert house.refused(house.client, m.Cancel("nobody")) == "job_not_found"


def test_cancel_in_retry_wait_ends_the_job() -> None:
    house, worker = in_state("leased")
    house.nack(worker, "a")
    assert (house.cancel("a"), house.state("a")) == ("cancelled", "cancelled")


def test_cancelled_job_does_not_run_when_it_would_be_due() -> None:
    house, _ = in_state("scheduled")
    house.cancel("a")
    house.pass_time(1000)
    assert (house.granted(), house.state("a")) == ([], "cancelled")


def test_running_job_is_cancelled_when_its_process_has_ended() -> None:
    house = House()
    supervisor, worker = house.supervised()
    house.cancel("a")
    (_, kill) = house.pushed(w.Kill)[0]
    assert kill == w.Kill("nonce-w1", [1, 1], "cancelled", limits.KILL_GRACE_MS)
    assert house.state("a") == "leased"
    house.die(worker.connection)
    house.ok(supervisor, w.Exited("nonce-w1", [[1, 1]], None, 9, [1, 1]))
    assert (house.state("a"), house.outcomes("a")) == ("cancelled", ["cancelled"])


def test_raw_worker_is_wished_to_stop_and_loses_the_job_after_the_grace() -> None:
    house, worker = in_state("leased")
    house.cancel("a")
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == [[1, 1]]
    house.pass_time(limits.KILL_GRACE_MS)
    assert house.state("a") == "cancelled"


def test_ack_that_was_faster_makes_the_job_done() -> None:
    house, worker = in_state("leased")
    house.cancel("a")
    house.ack(worker, "a")
    assert (house.state("a"), house.row("a").cancelling) == ("done", False)


@pytest.mark.parametrize(
    "end",
    [
        w.Nack([1, 1], "cancelled", "why"),
        w.Nack([1, 1], "error", "why"),
        w.Release([1, 1], "released"),
        w.Release([1, 1], "not_started"),
    ],
)
def test_cancelled_job_is_never_retried_however_its_attempt_ends(end: object) -> None:
    house, worker = in_state("leased")
    house.cancel("a")
    house.ok(worker.connection, end)
    assert (house.state("a"), house.granted()) == ("cancelled", ["a"])


def test_crash_of_a_job_that_is_being_cancelled_cancels_it() -> None:
    house, worker = in_state("leased")
    house.cancel("a")
    house.die(worker.connection)
    assert house.state("a") == "cancelled"


def test_second_cancel_asks_for_no_second_kill() -> None:
    house = House()
    house.supervised()
    assert [house.cancel("a") for _ in range(2)] == ["cancelling"] * 2
    assert len(house.pushed(w.Kill)) == 1


def test_cancel_during_a_kill_for_time_cancels_the_job() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    house.cancel("a")
    assert house.refused(worker.connection, w.Ack([1, 1])) == "lease_lost"
    assert house.state("a") == "cancelled"


def test_cancel_works_during_a_drain() -> None:
    house, _ = in_state("leased")
    house.ask(house.connect(), m.Drain())
    house.cancel("a")
    house.pass_time(limits.KILL_GRACE_MS)
    assert house.state("a") == "cancelled"
    assert m.Drained(0) in house.answers.values()


def test_cancel_survives_a_restart() -> None:
    house = House()
    house.supervised()
    house.cancel("a")
    house.restart()
    house.pushed(w.Kill)
    house.client = house.connect()
    supervisor = house.supervisor(workers=["nonce-w1"])
    assert house.pushed(w.Kill) == [
        (supervisor, w.Kill("nonce-w1", [1, 1], "cancelled", limits.KILL_GRACE_MS))
    ]
    house.ok(supervisor, w.Exited("nonce-w1", [[1, 1]], None, 9, [1, 1]))
    assert house.state("a") == "cancelled"


# --- kick ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["scheduled", "ready", "leased", "done", "cancelled"])
def test_only_a_dead_job_can_be_kicked(state: str) -> None:
    house, _ = in_state(state)
    assert house.refused(house.client, m.Kick("a")) == "not_dead"
    assert house.state("a") == state


def test_kicked_job_runs() -> None:
    house, worker = in_state("dead")
    assert house.ok(house.client, m.Kick("a")) == m.Counted(1)
    house.ack(worker, "a")
    assert house.outcomes("a") == ["permanent", "ok"]


def test_kick_of_a_queue_revives_its_oldest_dead_jobs() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    for id in "abc":
        house.enqueue(id)
    house.enqueue("d", queue="mail")
    assert house.ok(house.client, m.Kick(queue="default", limit=2)) == m.Counted(2)
    assert [house.state(id) for id in "abcd"] == ["ready", "ready", "dead", "dead"]


def test_kick_of_a_queue_without_dead_jobs_counts_none() -> None:
    house = House()
    assert house.ok(house.client, m.Kick(queue="nobody")) == m.Counted(0)
    assert house.core.statistics()["queues"] == 0


@pytest.mark.parametrize("message", [m.Kick(), m.Kick("a", "default"), m.Drop(), m.Drop("a", "default")])
def test_kick_and_drop_want_either_a_job_or_a_queue(message: Any) -> None:
    house, _ = in_state("dead")
    assert house.refused(house.client, message) == "bad_message"


@pytest.mark.parametrize("message", [m.Kick("nobody"), m.Drop("nobody")])
def test_kick_and_drop_of_a_job_that_never_existed(message: Any) -> None:
    house = House()
    assert house.refused(house.client, message) == "job_not_found"


def test_kicked_job_has_its_whole_expiry_again() -> None:
    house = House()
    house.enqueue("a", expires_ms=100)
    house.pass_time(5000)
    house.ok(house.client, m.Kick("a"))
    house.pass_time(99)
    assert house.state("a") == "ready"
    house.pass_time(1)
    assert house.state("a") == "dead"


def test_kicked_job_takes_the_policy_of_a_kind_that_was_declared_meanwhile() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    house.supervisor(kinds=[{"kind": "send", "queue": "mail", "priority": 2, "expires_ms": 700}])
    house.ok(house.client, m.Kick("a"))
    row = house.row("a")
    assert (row.queue, row.priority, row.resolved, row.expires_ms) == ("mail", 2, True, 700)
    assert row.expires_boot_ms == house.clock.now().boot_ms + 700
    assert list(house.status()["queues"]) == ["mail"]


def test_kicked_job_of_a_kind_that_is_still_unknown_waits_for_its_declaration() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    house.ok(house.client, m.Kick("a"))
    house.supervisor(kinds=[{"kind": "send", "queue": "mail"}])
    assert house.row("a").queue == "mail"


def test_job_of_an_earlier_start_can_be_kicked() -> None:
    house, _ = in_state("dead")
    house.restart()
    house.client = house.connect()
    house.ok(house.client, m.Kick("a"))
    assert (house.state("a"), house.row("a").epoch) == ("ready", 2)


# --- drop -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["scheduled", "ready", "leased"])
def test_only_a_finished_job_can_be_dropped(state: str) -> None:
    house, _ = in_state(state)
    assert house.refused(house.client, m.Drop("a")) == "not_finished"


@pytest.mark.parametrize("state", ["done", "dead", "cancelled"])
def test_dropped_job_is_gone_and_its_id_remembered(state: str) -> None:
    house, _ = in_state(state)
    assert house.ok(house.client, m.Drop("a")) == m.Counted(1)
    assert house.refused(house.client, m.Show("a")) == "job_not_found"
    assert (house.core.statistics()["ids_kept"], house.core.statistics()["queues"]) == (1, 0)


def test_drop_of_a_queue_deletes_its_oldest_dead_jobs() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    for id in "abc":
        house.enqueue(id)
    assert house.ok(house.client, m.Drop(queue="default", limit=2)) == m.Counted(2)
    assert [job.id for job in house.rows()] == ["c"]


def test_id_is_remembered_for_the_window_that_began_with_its_enqueue() -> None:
    house = House()
    house.enqueue("a", fresh=True)
    created_boot_ms = house.clock.now().boot_ms
    house.cancel("a")
    house.clock.pass_time(5000)
    event = ev.Received(house.client, 900, m.Drop("a"), {"a": house.journal.find("a")}, house.core.steps)
    house.step(event)
    ((_, _, _, kept_until_boot_ms),) = house.core.take_changes().deleted
    assert kept_until_boot_ms == created_boot_ms + limits.ID_KEPT_LIBRARY_MS


def test_id_of_an_earlier_start_is_remembered_for_a_whole_window() -> None:
    house, _ = in_state("done")
    house.restart()
    house.client = house.connect()
    house.clock.pass_time(5000)
    house.step(ev.Received(house.client, 900, m.Drop("a"), {"a": house.journal.find("a")}, house.core.steps))
    ((_, _, _, kept_until_boot_ms),) = house.core.take_changes().deleted
    assert kept_until_boot_ms == house.clock.now().boot_ms + limits.ID_KEPT_CALLER_MS


@pytest.mark.parametrize(
    ("created_ms", "until_ms"), [(100, 1100), (0, 1000), (-500, 0), (-400, 600), (9999, 1500)]
)
def test_id_is_kept_from_its_creation_and_never_beyond_one_window(created_ms: int, until_ms: int) -> None:
    assert kept_until(created_ms, 1000, 500) == until_ms


# --- pause, drain ---------------------------------------------------------------------------------------------


def test_paused_queue_shows_and_survives_its_last_job() -> None:
    house, worker = in_state("leased")
    house.ok(house.client, m.Pause("default"))
    house.ack(worker, "a")
    assert house.status()["queues"]["default"]["paused"]


def test_drain_that_nobody_waits_for_any_more_goes_on() -> None:
    house, _ = in_state("leased")
    caller = house.connect()
    house.ask(caller, m.Drain())
    house.hang_up(caller)
    house.enqueue("b")
    assert (house.granted(), house.status()["draining"]) == (["a"], True)


def test_stopping_broker_still_takes_in_the_ends_of_attempts() -> None:
    house, worker = in_state("leased")
    house.event(ev.StopRequested())
    house.ack(worker, "a")
    assert house.state("a") == "done"
