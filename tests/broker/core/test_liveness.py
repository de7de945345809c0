"""Dead, disconnected or hung: verdicts, the proofs they need, and the deadlines between them."""

from typing import Any

import pytest
from support.core_builders import TICKET, House, WorkerPeer

from stoker.broker.core import events as ev
from stoker.broker.core.liveness import BACK_MS, DOOM_MS, REPORT_CALLERS_MAX
from stoker.broker.core.rules import Rules
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.queuerules import QueueRules

LEASE_MS = limits.LEASE_MS_DEFAULT
RECONNECT_MS = limits.RECONNECT_GRACE_MS
SUPERVISOR_MS = limits.SUPERVISOR_GRACE_MS
GRACE_MS = limits.KILL_GRACE_MS


def supervised() -> tuple[House, int, WorkerPeer]:
    house = House()
    supervisor, worker = house.supervised()
    house.pushed(w.Kill)
    return house, supervisor, worker


def raw() -> tuple[House, WorkerPeer]:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    return house, worker


def exited(
    token: list[int] | None, signal: int | None = 9, status: int | None = None, **fields: Any
) -> w.Exited:
    return w.Exited("nonce-w1", [] if token is None else [token], status, signal, **fields)


def kills(house: House) -> list[tuple[int, str, int]]:
    """Kills that were pushed since the last call: (connection, reason, grace)."""
    return [(connection, kill.reason, kill.grace_ms) for connection, kill in house.pushed(w.Kill)]


# --- dead -----------------------------------------------------------------------------------------------


def test_job_of_a_dead_worker_waits_for_the_supervisor_and_is_then_free_at_once() -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    assert house.state("a") == "leased"
    house.ok(supervisor, exited(house.token("a"), memory_peak_bytes=5, cpu_ms=6))
    (row,) = house.show("a")["history"]
    assert (house.state("a"), row["outcome"], row["reason"]) == ("ready", "crash", "worker died (signal 9)")
    assert (row["signal"], row["status"], row["memory_peak_bytes"], row["cpu_ms"]) == (9, None, 5, 6)


@pytest.mark.parametrize("hung_up_first", [False, True])
def test_report_that_outruns_the_pidfd_counts_when_that_agrees(hung_up_first: bool) -> None:
    house, supervisor, worker = supervised()
    assert house.ask(supervisor, exited(house.token("a"))) is None
    request = house.last_request
    assert house.state("a") == "leased"
    if not hung_up_first:
        house.event(ev.PeerExited(worker.connection))
    house.hang_up(worker.connection)
    assert (house.outcomes("a"), house.answers[supervisor, request]) == (["crash"], m.Done())


def test_repeated_report_is_answered_each_time_it_was_sent() -> None:
    house, supervisor, worker = supervised()
    report = exited(house.token("a"))
    for _ in range(3):
        assert house.ask(supervisor, report) is None
    last = house.last_request
    house.die(worker.connection)
    assert [house.answers.get((supervisor, last - back)) for back in range(3)] == [m.Done()] * 3
    assert house.outcomes("a") == ["crash"]


def test_report_that_is_repeated_without_end_is_remembered_a_few_times() -> None:
    house, supervisor, worker = supervised()
    for _ in range(REPORT_CALLERS_MAX + 1):
        assert house.ask(supervisor, exited(house.token("a"))) is None
    house.die(worker.connection)
    assert list(house.answers.values()).count(m.Done()) == REPORT_CALLERS_MAX


def test_report_of_an_unknown_worker_is_confirmed() -> None:
    house, supervisor, _ = supervised()
    assert house.ok(supervisor, w.Exited("nonce-w9", [], 0, None)) == m.Done()


def test_report_of_another_supervisors_worker_changes_nothing() -> None:
    house, _, worker = supervised()
    other = house.supervisor(ticket=b"another ticket..")
    house.ok(other, exited(house.token("a")))
    house.hang_up(worker.connection)
    assert house.state("a") == "leased"


@pytest.mark.parametrize(
    ("report", "outcome", "reason"),
    [
        ({"signal": 11}, "crash", "worker died (signal 11)"),
        ({"signal": None, "status": 3}, "crash", "worker died (exit status 3)"),
        ({"signal": None}, "crash", "worker died (status unknown)"),
        (
            {"signal": 6, "over_memory": True},
            "memory",
            "worker died (signal 6) at its job's memory limit",
        ),
        ({"shutdown": True}, "shutdown", "its pool ended the worker, or lost the zygote"),
        ({"kill_token": [7, 7]}, "released", "ended by a kill that was meant for another attempt"),
        (
            {"kill_token": [1, 1]},
            "timeout",
            "killed by its supervisor: silent for too long, or by an order from before a restart",
        ),
    ],
)
def test_report_says_how_the_attempt_ended(report: dict[str, Any], outcome: str, reason: str) -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    house.ok(supervisor, exited(house.token("a"), **report))
    (row,) = house.show("a")["history"]
    assert (row["outcome"], row["reason"]) == (outcome, reason)


@pytest.mark.parametrize("token", [None, [9, 9]])
def test_job_that_the_dead_worker_was_not_running_was_never_started(token: list[int] | None) -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    house.ok(supervisor, exited(token))
    row = house.row("a")
    assert (row.state, row.attempt, row.charged, house.outcomes("a")) == ("ready", 0, 0, [])


def test_tree_that_was_not_swept_is_logged() -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    house.ok(supervisor, exited(house.token("a"), swept=False))
    assert "tree_not_swept" in house.logged


def test_silent_supervisor_makes_the_attempt_lost_after_its_grace() -> None:
    house, _, worker = supervised()
    house.die(worker.connection)
    house.pass_time(SUPERVISOR_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert (house.state("a"), house.outcomes("a")) == ("ready", ["lost"])


def test_late_report_of_a_lost_attempt_is_confirmed_and_changes_nothing() -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    house.pass_time(SUPERVISOR_MS)
    assert house.ok(supervisor, exited([1, 1])) == m.Done()
    assert house.outcomes("a") == ["lost"]


def test_dead_raw_worker_loses_its_job_at_once() -> None:
    house, worker = raw()
    house.die(worker.connection)
    assert (house.state("a"), house.outcomes("a")) == ("ready", ["lost"])


def test_ack_that_was_written_before_the_death_counts() -> None:
    house, supervisor, worker = supervised()
    house.ack(worker, "a")
    house.die(worker.connection)
    house.ok(supervisor, exited(None))
    assert house.outcomes("a") == ["ok"]


def test_job_that_kills_its_worker_is_delivered_crashes_max_times_over_all_restarts() -> None:
    house = House()
    house.enqueue("a", backoff_ms=1)
    for number in range(3):
        supervisor = house.supervisor(workers=[])
        worker = house.worker(ticket=TICKET)
        assert house.state("a") == "leased"
        house.die(worker.connection)
        house.ok(supervisor, exited(house.token("a")))
        house.pass_time(2 * number + 1)
        house.restart()
        house.client = house.connect()
    assert (house.state("a"), house.outcomes("a")) == ("dead", ["crash"] * 3)


# --- dead supervisor ------------------------------------------------------------------------------------


def freed_uncharged(house: House) -> bool:
    return (house.state("a"), house.outcomes("a"), house.row("a").charged) == ("ready", ["shutdown"], 0)


def test_jobs_of_a_dead_supervisor_are_freed_when_its_zygote_has_ended_their_workers() -> None:
    house, supervisor, worker = supervised()
    house.die(supervisor)
    house.pass_time(limits.SUPERVISOR_DEATH_TERM_MS)
    assert house.state("a") == "leased"
    house.die(worker.connection)
    assert freed_uncharged(house)
    assert "supervisor_died" in house.logged


@pytest.mark.parametrize("worker_first", [False, True])
def test_job_of_a_worker_that_something_else_ended_waits_until_a_zygote_has_swept(worker_first: bool) -> None:
    """Its supervisor, killed in the middle of the sweep, says nothing any more; what it had started may live."""
    house, supervisor, worker = supervised()
    first, second = (worker.connection, supervisor) if worker_first else (supervisor, worker.connection)
    house.die(first)
    house.pass_time(limits.SUPERVISOR_DEATH_TERM_MS - 1)
    house.die(second)
    since_supervisor_ms = 0 if worker_first else limits.SUPERVISOR_DEATH_TERM_MS - 1
    house.pass_time(DOOM_MS - since_supervisor_ms - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert freed_uncharged(house)


def test_supervisor_whose_workers_have_ended_has_left_in_order() -> None:
    house, supervisor, worker = supervised()
    house.ack(worker, "a")
    assert not house.core.is_missed(worker.connection)
    house.die(worker.connection)
    assert not house.core.is_missed(supervisor)
    house.die(supervisor)
    assert house.logged == ["pool_left"]


def test_supervisor_that_hangs_up_before_it_ends_has_left_all_the_same() -> None:
    house, supervisor, worker = supervised()
    house.ack(worker, "a")
    house.die(worker.connection)
    house.hang_up(supervisor)
    assert house.logged == ["pool_left"]


def test_peers_with_something_open_are_missed() -> None:
    house, supervisor, worker = supervised()
    assert house.core.is_missed(worker.connection)
    assert house.core.is_missed(supervisor)
    assert not house.core.is_missed(house.client)


def test_dead_supervisor_of_living_workers_frees_nothing() -> None:
    house, supervisor, worker = supervised()
    house.die(supervisor)
    house.ack(worker, "a")
    assert house.outcomes("a") == ["ok"]


def test_workers_of_a_dead_supervisor_get_nothing_new() -> None:
    house, supervisor, worker = supervised()
    house.die(supervisor)
    house.enqueue("b")
    house.ack(worker, "a")
    again = house.worker(ticket=TICKET)
    assert (house.state("b"), house.row("b").attempt) == ("ready", 0)
    house.die(again.connection)
    assert house.outcomes("b") == []


def test_worker_that_outlives_its_supervisor_is_killed_by_the_broker() -> None:
    house, supervisor, worker = supervised()
    house.die(supervisor)
    house.pass_time(DOOM_MS - 1)
    assert house.killed == []
    house.pass_time(1)
    assert house.killed == [worker.connection]
    house.pass_time(DOOM_MS)
    assert house.killed == [worker.connection] * 2
    house.die(worker.connection)
    assert house.outcomes("a") == ["shutdown"]


def with_both_dead() -> House:
    """Broker and pool ended together; the broker is back."""
    house, _, _ = supervised()
    house.restart()
    house.client = house.connect()
    assert house.core.absent_owners() == [
        "boot-id-1/1/100/5/nonce-w1",
        "boot-id-1/1/100/5/nonce-supervisor",
    ]
    return house


@pytest.mark.parametrize("worker_first", [False, True])
def test_job_of_a_pool_that_died_with_the_host_is_free_at_once_and_not_charged(worker_first: bool) -> None:
    house = with_both_dead()
    owners = house.core.absent_owners()
    for owner in owners if worker_first else reversed(owners):
        house.event(ev.OwnerGone(owner, of_another_boot=True))
    assert freed_uncharged(house)
    assert house.core.absent_owners() == []


@pytest.mark.parametrize("worker_first", [False, True])
def test_job_of_a_pool_that_died_with_the_broker_waits_until_a_zygote_has_swept(worker_first: bool) -> None:
    house = with_both_dead()
    owners = house.core.absent_owners()
    for owner in owners if worker_first else reversed(owners):
        house.event(ev.OwnerGone(owner))
    assert house.core.absent_owners() == []
    house.pass_time(DOOM_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert freed_uncharged(house)


def test_job_of_a_pool_that_nobody_can_look_up_is_free_after_its_grace_and_not_charged() -> None:
    house = with_both_dead()
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-w1"))
    house.pass_time(SUPERVISOR_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert (house.outcomes("a"), house.row("a").charged) == (["shutdown"], 0)


def test_supervisor_that_came_back_is_no_absent_owner() -> None:
    house = with_both_dead()
    house.supervisor(workers=["nonce-w1"])
    assert house.core.absent_owners() == ["boot-id-1/1/100/5/nonce-w1"]
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-supervisor"))
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-w1"))
    assert house.state("a") == "leased"


# --- disconnected ----------------------------------------------------------------------------------------


def test_raw_worker_that_does_not_come_back_loses_its_job_after_the_grace() -> None:
    house, worker = raw()
    house.hang_up(worker.connection)
    house.pass_time(RECONNECT_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert (house.state("a"), house.outcomes("a")) == ("ready", ["lost"])


def test_supervised_worker_that_does_not_come_back_is_killed_first() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(worker.connection)
    house.pass_time(RECONNECT_MS)
    assert (kills(house), house.state("a")) == ([(supervisor, "lost", 0)], "leased")
    house.ok(supervisor, exited(house.token("a"), kill_token=house.token("a")))
    assert house.outcomes("a") == ["lost"]


def test_short_lease_does_not_run_out_before_the_reconnect_grace() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", lease_ms=100)
    house.hang_up(worker.connection)
    house.pass_time(RECONNECT_MS - 1)
    assert house.state("a") == "leased"


def test_text_worker_loses_its_job_with_its_connection() -> None:
    house = House()
    connection = house.raw_worker(is_text=True)
    house.enqueue("a")
    house.hang_up(connection)
    assert (house.outcomes("a"), house.core.statistics()["workers"]) == (["lost"], 0)


def test_worker_without_identity_keeps_its_job_for_the_grace_and_is_then_forgotten() -> None:
    house = House()
    connection = house.raw_worker()
    house.enqueue("a")
    house.hang_up(connection)
    assert house.state("a") == "leased"
    house.pass_time(RECONNECT_MS)
    assert (house.outcomes("a"), house.core.statistics()["workers"]) == (["lost"], 0)


def test_worker_without_identity_is_not_waited_for_when_it_holds_nothing() -> None:
    house = House()
    connection = house.raw_worker()
    house.enqueue("a")
    house.ok(connection, w.Ack(house.token("a")))
    house.hang_up(connection)
    assert house.core.statistics()["workers"] == 0


def test_death_of_a_disconnected_worker_ends_the_wait_for_it() -> None:
    house, worker = raw()
    house.hang_up(worker.connection)
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-w1"))
    assert house.outcomes("a") == ["lost"]


def test_owner_who_is_connected_is_not_gone() -> None:
    house, _ = raw()
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-w1"))
    house.event(ev.OwnerGone("nobody"))
    assert house.state("a") == "leased"


def test_events_of_unknown_connections_change_nothing() -> None:
    house, worker = raw()
    house.event(ev.PeerExited(999))
    house.event(ev.Disconnected(999))
    house.step(ev.Received(999, 1, w.Ack([1, 1])))
    assert (house.state("a"), worker.welcome.lost) == ("leased", [])


# --- hung --------------------------------------------------------------------------------------------------


def test_silent_raw_worker_loses_its_lease() -> None:
    house, _ = raw()
    house.ok(house.client, m.Pause())
    house.pass_time(LEASE_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert (house.state("a"), house.outcomes("a")) == ("ready", ["lost"])


def test_heartbeat_renews_the_lease() -> None:
    house, worker = raw()
    for _ in range(5):
        house.pass_time(LEASE_MS - 1)
        assert house.ok(worker.connection, w.Heartbeat([house.token("a")])).cancel == []
    assert house.outcomes("a") == []


def test_supervisor_beats_for_its_workers() -> None:
    house, supervisor, _ = supervised()
    for _ in range(5):
        house.pass_time(LEASE_MS - 1)
        house.ok(supervisor, w.Heartbeat((), ["nonce-w1", "nonce-w9"]))
    assert kills(house) == []


def test_heartbeat_for_another_supervisors_worker_renews_nothing() -> None:
    house, supervisor, _ = supervised()
    other = house.supervisor(ticket=b"another ticket..")
    house.pass_time(LEASE_MS - 1)
    house.ok(other, w.Heartbeat((), ["nonce-w1"]))
    house.pass_time(1)
    assert kills(house) == [(supervisor, "lost", 0)]


def test_heartbeat_for_a_dead_worker_renews_nothing() -> None:
    house, supervisor, worker = supervised()
    house.die(worker.connection)
    house.pass_time(SUPERVISOR_MS - 1)
    house.ok(supervisor, w.Heartbeat((), ["nonce-w1"]))
    house.pass_time(1)
    assert house.outcomes("a") == ["lost"]


def test_dead_worker_is_not_killed_when_its_lease_or_time_would_run_out() -> None:
    house = House()
    house.supervisor()
    worker = house.worker(ticket=TICKET)
    house.enqueue("a", lease_ms=1000, time_limit_ms=2000)
    house.die(worker.connection)
    house.pass_time(SUPERVISOR_MS - 1)
    assert (kills(house), house.state("a")) == ([], "leased")


def test_silent_supervised_worker_is_killed_before_its_job_runs_again() -> None:
    house, supervisor, worker = supervised()
    house.pass_time(LEASE_MS)
    assert (kills(house), house.state("a")) == ([(supervisor, "lost", 0)], "leased")
    house.die(worker.connection)
    house.ok(supervisor, exited(house.token("a"), kill_token=house.token("a")))
    assert house.show("a")["history"][0]["reason"] == "no heartbeat within the lease"


def test_job_over_its_time_limit_is_killed_with_grace() -> None:
    house = House()
    supervisor, worker = house.supervisor(), house.worker(ticket=TICKET)
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    assert kills(house) == [(supervisor, "timeout", GRACE_MS)]
    house.die(worker.connection)
    house.ok(supervisor, exited(house.token("a"), kill_token=house.token("a")))
    assert house.outcomes("a") == ["timeout"]


def test_crash_that_came_before_the_kill_is_a_crash() -> None:
    house = House()
    supervisor, worker = house.supervisor(), house.worker(ticket=TICKET)
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    house.die(worker.connection)
    house.ok(supervisor, exited(house.token("a"), 11))
    assert house.outcomes("a") == ["crash"]


def test_raw_worker_over_its_time_limit_is_wished_to_stop_and_then_loses_the_job() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])) == w.Wishes(cancel=[[1, 1]])
    house.pass_time(GRACE_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert house.outcomes("a") == ["timeout"]


def test_kill_that_a_silent_supervisor_does_not_carry_out_is_done_by_the_broker() -> None:
    house, _, worker = supervised()
    house.pass_time(LEASE_MS)
    house.pass_time(SUPERVISOR_MS)
    assert (house.killed, house.state("a")) == ([worker.connection], "leased")
    house.pass_time(SUPERVISOR_MS)
    assert house.killed == [worker.connection] * 2


def test_worker_that_nobody_can_end_keeps_its_job_and_why_says_so() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(worker.connection)
    house.hang_up(supervisor)
    house.pass_time(RECONNECT_MS)
    house.pass_time(SUPERVISOR_MS)
    assert (house.killed, house.state("a")) == ([], "leased")
    assert "nobody is connected who could end it: make sure that pid 100 has ended" in house.why("a")


def test_kill_is_repeated_to_a_supervisor_who_comes_back() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(supervisor)
    house.hang_up(worker.connection)
    house.pass_time(RECONNECT_MS)
    assert kills(house) == []
    again = house.supervisor(workers=["nonce-w1"])
    assert kills(house) == [(again, "lost", 0)]


def test_kill_is_repeated_to_a_supervisor_who_is_silent_about_an_absent_worker() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(worker.connection)
    house.pass_time(RECONNECT_MS)
    house.pass_time(SUPERVISOR_MS)
    assert kills(house) == [(supervisor, "lost", 0)] * 2


def test_worker_that_its_supervisor_does_not_have_any_more_has_ended() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(worker.connection)
    house.supervisor(workers=[])
    house.pass_time(SUPERVISOR_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert (house.outcomes("a"), house.closed) == (["lost"], [supervisor])


# --- rhythm ----------------------------------------------------------------------------------------------------


def test_heartbeat_is_a_quarter_of_the_shortest_lease_of_a_kind() -> None:
    house = House()
    house.supervisor(kinds=[{"kind": "send", "lease_ms": 2000}, {"kind": "other"}])
    assert house.worker(ticket=TICKET).welcome.heartbeat_ms == 500


def test_heartbeat_is_a_quarter_of_the_shortest_lease_of_a_queue() -> None:
    house = House(Rules(queues={"mail": QueueRules(policy={"lease_ms": 800})}))
    assert house.worker().welcome.heartbeat_ms == 200


def test_supervisor_is_told_of_a_shorter_lease_before_it_can_run_out() -> None:
    house, supervisor, worker = supervised()
    house.ack(worker, "a")
    house.enqueue("b", lease_ms=400)
    house.pass_time(limits.HEARTBEAT_MS_MAX)
    assert house.ok(supervisor, w.Heartbeat((), ["nonce-w1"])) == w.Wishes(heartbeat_ms=100)
    assert (house.state("b"), kills(house)) == ("leased", [])


def test_own_heartbeat_never_shortens_the_first_deadline() -> None:
    house, _, worker = supervised()
    house.ack(worker, "a")
    house.enqueue("b", lease_ms=400)
    house.ok(worker.connection, w.Heartbeat([house.token("b")]))
    house.worker("nonce-w2")
    house.enqueue("c", time_limit_ms=limits.HEARTBEAT_MS_MAX)
    house.pass_time(limits.HEARTBEAT_MS_MAX)
    assert kills(house) == []


def test_other_supervisors_lease_does_not_quicken_the_rhythm() -> None:
    house, supervisor, worker = supervised()
    house.ack(worker, "a")
    other = house.supervisor(ticket=b"another ticket..")
    house.enqueue("b", lease_ms=400)
    rhythms = [house.ok(connection, w.Heartbeat()).heartbeat_ms for connection in (supervisor, other)]
    assert rhythms == [100, limits.HEARTBEAT_MS_MAX]


def test_heartbeat_that_carries_nothing_is_answered_at_once() -> None:
    house, worker = raw()
    for tokens, now in (([[1, 1]], True), ([[1, 1], [5, 5]], False)):
        event = ev.Received(worker.connection, 900, w.Heartbeat(tokens))
        (answer,) = house.core.step(event, house.clock.now())
        assert getattr(answer, "now", None) is now


def test_draining_broker_wishes_quiet_and_a_stopping_one_does_not_stop_its_workers() -> None:
    house, worker = raw()
    house.ask(house.client, m.Drain())
    house.event(ev.StopRequested())
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])) == w.Wishes(quiet=True, cancel=[])


# --- stalls ----------------------------------------------------------------------------------------------------


def stall(house: House, stalled_ms: int) -> None:
    house.clock.pass_time(stalled_ms)
    house.event(ev.Stalled(stalled_ms))


def test_stall_of_the_broker_expires_no_lease() -> None:
    house, worker = raw()
    stall(house, 10 * LEASE_MS)
    house.pass_time(LEASE_MS - 1)
    assert house.state("a") == "leased"
    house.ack(worker, "a")


def test_short_lease_gets_a_full_interval_after_a_stall() -> None:
    house = House()
    house.worker()
    house.enqueue("a", lease_ms=100)
    stall(house, 10_000)
    house.pass_time(limits.HEARTBEAT_MS_MAX - 1)
    assert house.state("a") == "leased"


def test_graces_begin_anew_or_are_prolonged_by_a_stall() -> None:
    house, supervisor, worker = supervised()
    house.hang_up(worker.connection)
    stall(house, RECONNECT_MS)
    house.pass_time(RECONNECT_MS - 1)
    assert kills(house) == []
    house.pass_time(1)
    assert kills(house) == [(supervisor, "lost", 0)]


def test_stall_counts_not_for_a_time_limit() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    stall(house, 5000)
    house.pass_time(999)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == []
    house.pass_time(1)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == [[1, 1]]


def test_stall_counts_not_for_a_kill() -> None:
    house = House()
    house.worker()
    house.enqueue("a")
    house.cancel("a")
    stall(house, GRACE_MS)
    house.pass_time(GRACE_MS - 1)
    assert house.state("a") == "leased"
    house.pass_time(1)
    assert house.state("a") == "cancelled"


def test_stall_counts_not_for_a_report_that_is_due() -> None:
    house, _, worker = supervised()
    house.die(worker.connection)
    stall(house, SUPERVISOR_MS)
    assert house.state("a") == "leased"
    house.pass_time(SUPERVISOR_MS)
    assert house.outcomes("a") == ["lost"]


# --- a disk that takes long --------------------------------------------------------------------------------------


def held_up(house: House, held_ms: int) -> None:
    """Everything that was pushed since the last look at the pushes leaves so much later."""
    house.clock.pass_time(held_ms)
    house.event(ev.HeldUp([message for _, message in house.pushed(object)]))


def test_time_limit_counts_from_when_the_job_leaves() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    held_up(house, 900)
    house.pass_time(999)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == []
    house.pass_time(1)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == [[1, 1]]


def test_lease_counts_from_when_the_job_leaves() -> None:
    house, worker = raw()
    held_up(house, 2 * LEASE_MS)
    house.pass_time(LEASE_MS - 1)
    assert house.state("a") == "leased"
    house.ack(worker, "a")


def test_first_lease_of_a_job_that_leaves_late_lasts_two_beats_of_its_supervisor() -> None:
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1"])
    house.worker(ticket=TICKET)
    house.enqueue("a", lease_ms=100)
    held_up(house, 10_000)
    house.pass_time(2 * limits.HEARTBEAT_MS_MAX - 1)
    assert kills(house) == []
    house.pass_time(1)
    assert kills(house) == [(supervisor, "lost", 0)]


def test_disk_that_always_takes_long_makes_no_job_last_that_has_left() -> None:
    house = House()
    house.worker()
    busy = house.worker("nonce-w2", kinds=["digest"])
    house.enqueue("a")
    house.enqueue("b", "digest", time_limit_ms=LEASE_MS // 2)
    for _ in range(LEASE_MS // 1000 + 1):
        held_up(house, 1000)
        house.ok(busy.connection, w.Heartbeat([[1, 2]]))
        house.event(ev.TimePassed())
    assert house.outcomes("a") == ["lost"]
    assert house.outcomes("b")[:1] == ["timeout"]


def test_kill_that_leaves_late_has_its_grace_from_then_on() -> None:
    house, _, _ = supervised()
    house.cancel("a")
    held_up(house, GRACE_MS + SUPERVISOR_MS)
    house.pass_time(GRACE_MS + SUPERVISOR_MS - 1)
    assert house.killed == []
    house.pass_time(1)
    assert len(house.killed) == 1


def test_job_that_leaves_late_and_is_to_be_ended_is_not_begun_anew() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.cancel("a")
    house.pass_time(GRACE_MS - 1)
    held_up(house, 1)
    assert house.ok(worker.connection, w.Heartbeat([[1, 1]])).cancel == [[1, 1]]
    house.event(ev.TimePassed())
    assert house.state("a") == "cancelled"


def test_job_that_is_over_when_it_leaves_is_nothing_to_begin() -> None:
    house, worker = raw()
    house.ack(worker, "a")
    held_up(house, 100)
    assert (house.state("a"), house.core.statistics()["leases"]) == ("done", 0)


# --- time limits of those who are away ----------------------------------------------------------------------------


def away(house: House, how: str, worker: WorkerPeer) -> None:
    """The worker's connection ends, or the broker."""
    if how == "restart":
        house.restart()
        house.client = house.connect()
    else:
        house.hang_up(worker.connection)


@pytest.mark.parametrize("how", ["restart", "cut"])
def test_attempt_that_ended_in_time_while_its_worker_was_away_has_succeeded(how: str) -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=400)
    away(house, how, worker)
    house.pass_time(BACK_MS - 1)
    again = house.worker(held=[[*house.token("a"), "finished"]])
    house.event(ev.TimePassed())
    house.ack(again, "a")
    assert house.outcomes("a") == ["ok"]


@pytest.mark.parametrize("how", ["restart", "cut"])
def test_attempt_that_still_runs_over_its_limit_when_its_worker_is_back_is_ended_then(how: str) -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=400)
    away(house, how, worker)
    house.pass_time(BACK_MS - 1)
    again = house.worker(held=[[*house.token("a"), "running"]])
    house.event(ev.TimePassed())
    assert house.ok(again.connection, w.Heartbeat([house.token("a")])).cancel == [house.token("a")]


@pytest.mark.parametrize("how", ["restart", "cut"])
def test_attempt_whose_worker_does_not_come_back_is_ended_by_its_limit_all_the_same(how: str) -> None:
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1"])
    worker = house.worker(ticket=TICKET)
    house.enqueue("a", time_limit_ms=400)
    away(house, how, worker)
    if how == "restart":
        supervisor = house.supervisor(workers=["nonce-w1"])
    house.pushed(w.Kill)
    house.pass_time(BACK_MS - 1)
    assert kills(house) == []
    house.pass_time(1)
    assert kills(house) == [(supervisor, "timeout", GRACE_MS)]


# --- restarts of the broker --------------------------------------------------------------------------------------


def test_restart_is_no_event_for_a_worker_that_comes_back() -> None:
    house, _, _ = supervised()
    house.restart()
    house.client = house.connect()
    house.supervisor(workers=["nonce-w1"])
    worker = house.worker(ticket=TICKET, held=[[*house.token("a"), "running"]])
    house.ack(worker, "a")
    assert (house.outcomes("a"), house.row("a").charged, house.row("a").attempt) == (["ok"], 0, 1)


def test_owner_who_is_proved_dead_after_a_restart_is_not_waited_for() -> None:
    house, _ = raw()
    house.restart()
    house.client = house.connect()
    assert house.core.absent_owners() == ["boot-id-1/1/100/5/nonce-w1"]
    house.event(ev.OwnerGone("boot-id-1/1/100/5/nonce-w1"))
    assert (house.outcomes("a"), house.core.absent_owners()) == (["lost"], [])


def test_report_for_a_worker_of_an_earlier_start_counts() -> None:
    house, _, _ = supervised()
    house.restart()
    house.client = house.connect()
    supervisor = house.supervisor(workers=["nonce-w1"])
    house.ok(supervisor, exited(house.token("a")))
    assert house.outcomes("a") == ["crash"]


def test_short_lease_outlives_a_restart_by_the_reconnect_grace() -> None:
    house = House()
    house.worker()
    house.enqueue("a", lease_ms=100)
    house.restart()
    house.client = house.connect()
    house.pass_time(RECONNECT_MS - 1)
    assert house.state("a") == "leased"


def test_absent_supervisor_is_forgotten_after_its_grace() -> None:
    house, _, worker = supervised()
    house.restart()
    house.client = house.connect()
    assert house.core.statistics()["pools"] == 1
    again = house.worker(ticket=TICKET, held=[[*house.token("a"), "running"]])
    house.ack(again, "a")
    house.die(again.connection)
    house.pass_time(SUPERVISOR_MS)
    assert (house.core.statistics()["pools"], worker.nonce) == (0, "nonce-w1")
