"""Taking jobs in: once for each id, within the limits of the queue, settled by the kind."""

from typing import Any

import pytest
from support.core_builders import KIND, House, fresh_id, rules_of

from stoker.broker.core import events as ev
from stoker.broker.core.enqueueing import body_hash, contradiction
from stoker.broker.core.rules import Rules
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto.messages import Refusal
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules

BASE = m.Enqueue("a", "send", b"payload")
OTHER: dict[str, Any] = {
    "id": "b",
    "kind": "other",
    "payload": b"other",
    "queue": "mail",
    "priority": 1,
    "delay_ms": 1,
    "run_at_ms": 1,
    "expires_ms": 1,
    "attempts_max": 1,
    "crashes_max": 1,
    "time_limit_ms": 1,
    "lease_ms": 100,
    "backoff_ms": 1,
    "backoff_cap_ms": 1,
    "headers": {"trace": "1"},
}


# --- same id, same job -------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", OTHER)
def test_body_is_another_one_if_any_field_is(field: str) -> None:
    assert body_hash(BASE._replace(**{field: OTHER[field]})) != body_hash(BASE)


@pytest.mark.parametrize("field", [{"fresh": True}, {"wait_ms": 5}, {"headers": {}}])
def test_body_is_the_same_however_it_is_sent(field: dict[str, Any]) -> None:
    assert body_hash(BASE._replace(**field)) == body_hash(BASE)


def test_every_field_is_either_part_of_the_body_or_says_how_it_is_sent() -> None:
    assert set(m.Enqueue._fields) == {*OTHER, "fresh", "wait_ms"}


def test_order_of_headers_does_not_matter() -> None:
    one, two = ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    assert body_hash(BASE._replace(headers=one)) == body_hash(BASE._replace(headers=two))


def test_repeat_has_the_answer_of_the_first_time() -> None:
    house = House()
    assert house.enqueue("a") == house.enqueue("a") == m.Enqueued("a", 1)


def test_repeat_is_recognised_when_the_job_is_done() -> None:
    house = House()
    first, worker = house.enqueue("a"), house.worker()
    house.ack(worker, "a")
    assert house.enqueue("a") == first


def test_repeat_is_recognised_when_the_job_was_dropped() -> None:
    house = House()
    first = house.enqueue("a")
    house.cancel("a")
    house.ok(house.client, m.Drop("a"))
    assert house.enqueue("a") == first


def test_other_body_is_a_conflict() -> None:
    house = House()
    house.enqueue("a")
    assert house.refused(house.client, m.Enqueue("a", "send", b"other")) == "conflict"


def test_repeat_comes_before_every_other_reason_to_refuse() -> None:
    house = House(rules_of(jobs_max=1))
    first = house.enqueue("a")
    house.event(ev.StorageChanged(True))
    house.event(ev.StopRequested())
    assert house.enqueue("a") == first


def test_id_that_was_said_to_be_fresh_twice_is_a_conflict() -> None:
    house = House()
    house.enqueue("a", fresh=True)
    assert house.refused(house.client, BASE._replace(fresh=True)) == "conflict"


def test_fresh_id_of_a_finished_job_is_a_conflict() -> None:
    house = House()
    house.pass_time(60_000)
    id = fresh_id(house.clock.now().wall_ms)
    house.enqueue(id, fresh=True)
    house.cancel(id)
    assert house.refused(house.client, m.Enqueue(id, "send", b"payload", fresh=True)) == "conflict"


def test_fresh_id_of_this_moment_needs_no_look_up() -> None:
    house = House()
    house.pass_time(60_000)
    message = m.Enqueue(fresh_id(house.clock.now().wall_ms), "send", b"", fresh=True)
    assert house.core.wants(message) == ()
    assert house.core.wants(message._replace(fresh=False)) != ()


def test_library_made_id_is_remembered_for_a_shorter_time() -> None:
    house = House()
    house.enqueue("made", fresh=True)
    house.enqueue("chosen")
    assert (house.row("made").id_by_caller, house.row("chosen").id_by_caller) == (False, True)


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"delay_ms": 1, "run_at_ms": 1}, "not both"),
        ({"backoff_ms": 2, "backoff_cap_ms": 1}, "`backoff_cap_ms` is below"),
        ({"backoff_ms": 2, "backoff_cap_ms": 2}, ""),
        ({"backoff_cap_ms": 1}, ""),
    ],
)
def test_fields_that_contradict_each_other_are_named(fields: dict[str, Any], word: str) -> None:
    text = contradiction(BASE._replace(**fields))
    assert (word in text) if word else not text


def test_contradiction_is_a_bad_message() -> None:
    house = House()
    assert house.refused(house.client, BASE._replace(delay_ms=1, run_at_ms=1)) == "bad_message"


def test_full_disk_refuses_until_space_returns() -> None:
    house = House()
    house.event(ev.StorageChanged(True))
    assert house.refused(house.client, BASE) == "storage_full"
    house.event(ev.StorageChanged(False))
    house.enqueue("a")


def test_stopping_broker_refuses() -> None:
    house = House()
    house.event(ev.StopRequested())
    assert house.refused(house.client, BASE) == "shutting_down"


def test_too_many_remembered_ids_refuse_until_some_are_forgotten() -> None:
    house = House(Rules(ids_kept_max=1))
    house.enqueue("a")
    house.cancel("a")
    house.ok(house.client, m.Drop("a"))
    assert house.refused(house.client, m.Enqueue("b", "send", b"")) == "ids_full"
    house.event(ev.IdsForgotten(1))
    house.enqueue("b")


def test_live_jobs_of_all_queues_together_are_bounded() -> None:
    house = House(Rules(jobs_max=2))
    house.enqueue("a", queue="one")
    house.enqueue("b", queue="two", delay_ms=1000)
    assert house.refused(house.client, m.Enqueue("c", "send", b"", queue="three")) == "queue_full"
    house.enqueue("a", queue="one")
    house.cancel("b")
    house.enqueue("c", queue="three")


def test_queues_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 2)
    house = House()
    house.enqueue("a", queue="one")
    house.ok(house.client, m.Pause("two"))
    assert house.refused(house.client, m.Enqueue("c", "send", b"", queue="three")) == "queue_full"
    assert house.refused(house.client, m.Pause("three")) == "queue_full"
    house.enqueue("b", queue="two")
    house.ok(house.client, m.Resume("two"))
    house.cancel("b")
    house.ok(house.client, m.Drop("b"))
    house.enqueue("c", queue="three")


def test_default_and_configured_queues_are_open_whoever_filled_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    house = House(Rules(queues={"mail": QueueRules()}))
    house.enqueue("a", queue="one")
    assert house.refused(house.client, m.Enqueue("b", "send", b"", queue="two")) == "queue_full"
    house.enqueue("b")
    house.enqueue("c", queue="mail")


def test_job_is_moved_to_the_queue_of_its_kind_also_if_that_is_one_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    house = House()
    house.enqueue("a")
    house.enqueue("b", kind="other")
    house.supervisor(kinds=[{"kind": KIND, "queue": "mail"}])
    assert (house.row("a").queue, house.state("a"), house.logged) == ("mail", "ready", ["queues_full"])
    assert house.refused(house.client, m.Enqueue("c", "send", b"", queue="two")) == "queue_full"


def test_kicked_job_goes_to_the_queue_of_its_kind_also_if_that_is_one_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "QUEUES_MAX", 1)
    house = House()
    house.enqueue("a", expires_ms=10)
    house.pass_time(10)
    house.supervisor(kinds=[{"kind": KIND, "queue": "mail"}])
    house.ok(house.client, m.Kick("a"))
    assert (house.row("a").queue, house.state("a")) == ("mail", "ready")
    assert house.logged.count("queues_full") == 1


def full_but_for_one_who_waits() -> House:
    """Job `a` in queue `mail`, `c` and `d` elsewhere, more than all may hold; `b` waits for room in `mail`."""
    mail = QueueRules(jobs_max=1, overflow=Overflow.WAIT)
    house = House(Rules(jobs_max=2, queues={"mail": mail}))
    house.enqueue("d", expires_ms=10)
    house.pass_time(10)
    house.enqueue("a", queue="mail")
    assert house.ask(house.client, m.Enqueue("b", "send", b"", queue="mail", wait_ms=1000)) is None
    house.enqueue("c")
    house.ok(house.client, m.Kick("d"))
    return house


def test_kick_goes_past_the_limit_of_all_queues() -> None:
    house = full_but_for_one_who_waits()
    assert house.core.statistics()["jobs"] == 3


def test_who_waited_for_room_in_his_queue_is_let_in_past_the_limit_of_all() -> None:
    house = full_but_for_one_who_waits()
    house.cancel("a")
    assert house.state("b") == "ready"
    assert house.refused(house.client, m.Enqueue("e", "send", b"")) == "queue_full"


# --- room --------------------------------------------------------------------------------------------------


def test_full_queue_rejects() -> None:
    house = House(rules_of(jobs_max=1))
    house.enqueue("a")
    assert house.refused(house.client, m.Enqueue("b", "send", b"")) == "queue_full"
    house.enqueue("c", queue="other")


def test_queue_that_is_full_by_bytes_rejects() -> None:
    house = House(rules_of(bytes_max=10))
    house.enqueue("a", payload=b"123456")
    assert house.refused(house.client, m.Enqueue("b", "send", b"12345")) == "queue_full"
    house.enqueue("c", payload=b"1234")


def test_refused_enqueue_leaves_no_queue_behind() -> None:
    house = House(rules_of(jobs_max=0))
    assert house.refused(house.client, BASE) == "queue_full"
    assert house.core.statistics()["queues"] == 0


def test_running_jobs_take_room_and_finished_ones_do_not() -> None:
    house = House(rules_of(jobs_max=1))
    worker = house.worker()
    house.enqueue("a")
    assert house.refused(house.client, m.Enqueue("b", "send", b"")) == "queue_full"
    house.ack(worker, "a")
    house.enqueue("b")


def test_overflow_is_taken_in_as_a_dead_letter() -> None:
    house = House(rules_of(jobs_max=1, overflow=Overflow.DEAD))
    house.enqueue("a")
    house.enqueue("b")
    assert (house.state("b"), house.show("b")["reason"]) == ("dead", "overflow: queue default was full")


def test_overflow_beyond_the_cap_of_dead_letters_is_rejected() -> None:
    house = House(rules_of(jobs_max=0, dead_max=1, overflow=Overflow.DEAD))
    house.enqueue("a")
    assert house.refused(house.client, m.Enqueue("b", "send", b"")) == "queue_full"


@pytest.mark.parametrize(
    ("overflow", "payload", "waits"),
    [
        (Overflow.REJECT, b"12", False),
        (Overflow.DEAD, b"12", False),
        (Overflow.WAIT, b"12", True),
        (Overflow.WAIT, b"12345", False),
    ],
)
def test_refusal_says_whether_waiting_for_room_is_possible(
    overflow: Overflow, payload: bytes, *, waits: bool
) -> None:
    house = House(rules_of(jobs_max=1, dead_max=0, bytes_max=4, overflow=overflow))
    house.enqueue("a", payload=b"1")
    answer = house.ask(house.client, m.Enqueue("b", "send", payload))
    assert isinstance(answer, Refusal)
    assert answer.detail == {"queue": "default", "waits": waits}


def test_kicked_overflow_runs() -> None:
    house = House(rules_of(jobs_max=0, overflow=Overflow.DEAD))
    house.enqueue("a")
    house.ok(house.client, m.Kick("a"))
    house.worker()
    assert house.granted() == ["a"]


# --- when and where ----------------------------------------------------------------------------------------


def test_delayed_job_becomes_ready_when_its_delay_is_over() -> None:
    house = House()
    house.enqueue("a", delay_ms=10_000)
    house.pass_time(9_999)
    assert house.state("a") == "scheduled"
    house.pass_time(1)
    assert house.state("a") == "ready"


def test_delay_keeps_its_length_through_steps_of_the_wall_clock() -> None:
    house = House()
    house.enqueue("a", delay_ms=10_000)
    for step_ms in (-3_600_000, 3_600_000, -3_600_000):
        house.clock.set_wall(step_ms)
        house.pass_time(3_000)
    assert house.state("a") == "scheduled"
    house.pass_time(1_000)
    assert house.state("a") == "ready"


def test_date_follows_the_wall_clock() -> None:
    house = House()
    house.enqueue("a", run_at_ms=house.clock.now().wall_ms + 10_000)
    house.clock.set_wall(-3_600_000)
    house.pass_time(60_000)
    assert house.state("a") == "scheduled"
    house.clock.set_wall(3_600_000)
    house.pass_time(0)
    assert house.state("a") == "ready"


def test_date_in_the_past_is_ready_at_once() -> None:
    house = House()
    house.enqueue("a", run_at_ms=1)
    assert house.state("a") == "ready"


def test_longest_delay_is_only_a_long_delay() -> None:
    house = House()
    house.enqueue("a", delay_ms=limits.DURATION_MS_MAX)
    house.enqueue("b", run_at_ms=limits.INTEGER_MAX)
    assert (house.state("a"), house.state("b")) == ("scheduled", "scheduled")


@pytest.mark.parametrize("dated", [False, True])
def test_many_jobs_due_at_once_come_a_few_at_a_step(dated: bool) -> None:
    house = House(checked=False)
    wall_ms = house.clock.now().wall_ms
    count = limits.DUE_JOBS_STEP + 1
    for number in range(count):
        if dated:
            house.enqueue(f"job-{number}", run_at_ms=wall_ms + 10)
        else:
            house.enqueue(f"job-{number}", delay_ms=10)
    house.clock.pass_time(20)
    house.step(ev.TimePassed())
    assert house.status()["totals"]["ready"] == limits.DUE_JOBS_STEP
    assert house.core.next_deadline(house.clock.now()) == 0
    house.settle()
    assert house.status()["totals"]["ready"] == count


def test_jobs_become_ready_in_the_order_in_which_they_are_due() -> None:
    house = House()
    for id, delay_ms in (("c", 30), ("a", 10), ("b", 20)):
        house.enqueue(id, delay_ms=delay_ms)
    house.worker(slots=3)
    house.pass_time(60)
    assert house.granted() == ["a", "b", "c"]


def test_expired_job_is_dead() -> None:
    house = House()
    house.enqueue("a", expires_ms=1000)
    house.pass_time(999)
    assert house.state("a") == "ready"
    house.pass_time(1)
    assert (house.state("a"), house.show("a")["reason"]) == ("dead", "expired: not started within 1000 ms")


def test_job_that_is_due_and_expired_at_once_does_not_run() -> None:
    house = House()
    house.worker()
    house.enqueue("a", delay_ms=1000, expires_ms=1000)
    house.pass_time(1000)
    assert (house.granted(), house.state("a")) == ([], "dead")


def test_expired_job_does_not_run_when_more_expire_than_one_step_handles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DUE_JOBS_STEP", 1)
    house = House()
    house.worker()
    for id in "abc":
        house.enqueue(id, delay_ms=1000, expires_ms=1000)
    house.pass_time(1000)
    assert (house.granted(), [house.state(id) for id in "abc"]) == ([], ["dead"] * 3)


def test_policy_of_the_kind_settles_queue_priority_and_expiry() -> None:
    house = House()
    house.supervisor(kinds=[{"kind": "send", "queue": "mail", "priority": 3, "expires_ms": 50}])
    house.enqueue("a")
    row = house.row("a")
    assert (row.queue, row.priority, row.expires_ms) == ("mail", 3, 50)


def test_enqueue_counts_over_the_policy_of_the_kind() -> None:
    house = House()
    house.supervisor(kinds=[{"kind": "send", "queue": "mail", "priority": 3, "expires_ms": 50}])
    house.enqueue("a", queue="own", priority=0, expires_ms=70)
    row = house.row("a")
    assert (row.queue, row.priority, row.expires_ms) == ("own", 0, 70)


def test_job_of_an_unknown_kind_waits_in_default_until_the_kind_is_declared() -> None:
    house = House()
    house.enqueue("a")
    assert house.row("a").queue == "default"
    house.supervisor(kinds=[{"kind": "send", "queue": "mail", "priority": 3}])
    row = house.row("a")
    assert (row.queue, row.priority, row.resolved) == ("mail", 3, True)
    assert list(house.status()["queues"]) == ["mail"]


def test_job_that_leaves_nothing_to_its_kind_waits_for_no_declaration() -> None:
    house = House()
    house.enqueue("a", queue="mail", priority=0, expires_ms=9)
    assert (house.row("a").resolved, house.core.statistics()["unresolved_kinds"]) == (True, 0)


def test_declared_job_keeps_its_place_in_its_new_queue() -> None:
    house = House()
    house.enqueue("a")
    house.enqueue("b", "other", queue="mail", priority=0, expires_ms=9999)
    house.supervisor(kinds=[{"kind": "send", "queue": "mail"}])
    house.worker(kinds=["send", "other"], slots=2)
    assert house.granted() == ["a", "b"]


def test_expiry_of_a_declared_kind_counts_from_the_enqueue() -> None:
    house = House()
    house.worker()
    house.enqueue("a", delay_ms=60)
    house.pass_time(50)
    house.supervisor(kinds=[{"kind": "send", "expires_ms": 50}])
    assert (house.state("a"), house.granted()) == ("dead", [])


def test_ready_job_whose_kind_turns_out_to_expire_is_dead() -> None:
    house = House()
    house.enqueue("a")
    house.pass_time(50)
    house.supervisor(kinds=[{"kind": "send", "expires_ms": 50}])
    assert house.state("a") == "dead"


def test_running_job_is_declared_without_being_disturbed() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.supervisor(kinds=[{"kind": "send", "queue": "mail", "expires_ms": 1}])
    house.pass_time(10)
    assert (house.state("a"), house.row("a").queue) == ("leased", "mail")
    house.ack(worker, "a")


def test_scheduled_job_is_declared_and_still_due() -> None:
    house = House()
    house.enqueue("a", delay_ms=10)
    house.supervisor(kinds=[{"kind": "send", "queue": "mail"}])
    house.pass_time(10)
    assert (house.state("a"), house.row("a").queue) == ("ready", "mail")


def test_room_that_a_declaration_makes_is_given_to_who_waits_for_it() -> None:
    house = House(rules_of(jobs_max=1, overflow=Overflow.WAIT))
    house.enqueue("a")
    assert house.ask(house.client, m.Enqueue("b", "other", b"", queue="default", wait_ms=1000)) is None
    house.supervisor(kinds=[{"kind": "send", "queue": "mail"}])
    assert house.state("b") == "ready"


def with_queue_policy() -> House:
    return House(Rules(queues={"mail": QueueRules(policy={"priority": 7, "expires_ms": 30})}))


def test_queue_settles_priority_and_expiry_where_neither_enqueue_nor_kind_says() -> None:
    house = with_queue_policy()
    house.enqueue("a", queue="mail")
    house.enqueue("b", queue="mail", priority=0, expires_ms=90)
    rows = [(house.row(id).priority, house.row(id).expires_ms) for id in ("a", "b")]
    assert rows == [(7, 30), (0, 90)]


def test_kind_goes_before_its_queue() -> None:
    house = with_queue_policy()
    house.supervisor(kinds=[{"kind": KIND, "queue": "mail", "priority": 0, "expires_ms": 90}])
    house.enqueue("a")
    assert (house.row("a").queue, house.row("a").priority, house.row("a").expires_ms) == ("mail", 0, 90)


def test_kind_that_becomes_known_goes_before_its_queue() -> None:
    house = with_queue_policy()
    house.enqueue("a", queue="mail")
    house.supervisor(kinds=[{"kind": KIND, "priority": 3, "expires_ms": 90}])
    assert (house.row("a").priority, house.row("a").expires_ms) == (3, 90)
