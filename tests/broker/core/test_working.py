"""What workers and supervisors say: hello, pool, and the ends of attempts."""

from typing import Any

import pytest
from support.core_builders import TICKET, House, WorkerPeer, identity_of

from stoker.broker.core import events as ev
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w


def a_hello(**fields: Any) -> m.Hello:
    values: dict[str, Any] = {
        "version": 1,
        "role": "work",
        "identity": identity_of("nonce-w1"),
        "kinds": ["send"],
        "slots": 1,
    }
    return m.Hello(**values | fields)


def running() -> tuple[House, WorkerPeer]:
    """Job `a` on a raw worker."""
    house = House()
    worker = house.worker()
    house.enqueue("a")
    return house, worker


# --- hello --------------------------------------------------------------------------------------------------


def test_client_learns_the_limits() -> None:
    house = House()
    assert house.ok(house.client, m.Hello(1, "submit")) == m.Welcome(
        1,
        1,
        limits.HEARTBEAT_MS_MAX,
        limits.FRAME_BYTES_MAX,
        limits.PAYLOAD_BYTES_MAX,
        limits.RESULT_BYTES_MAX,
    )


def test_welcome_comes_before_the_first_job() -> None:
    house = House()
    house.enqueue("a")
    connection = house.connect()
    effects = house.core.step(ev.Received(connection, 1, a_hello()), house.clock.now())
    assert [type(effect).__name__ for effect in effects] == ["Answer", "Push"]


def test_welcome_comes_before_jobs_that_what_it_gives_back_makes_ready() -> None:
    house, worker = running()
    house.enqueue("b")
    house.hang_up(worker.connection)
    connection = house.connect()
    effects = house.core.step(ev.Received(connection, 1, a_hello()), house.clock.now())
    assert [type(effect).__name__ for effect in effects] == ["Answer", "Push"]


def test_worker_that_comes_back_keeps_what_it_runs() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    again = house.worker(held=[[*house.token("a"), "running"]])
    assert again.welcome.lost == []
    house.ack(again, "a")
    assert house.outcomes("a") == ["ok"]


def test_lease_that_a_worker_came_back_without_is_released() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    house.worker()
    assert (house.outcomes("a"), house.row("a").charged) == (["released"], 0)


def test_lease_that_a_worker_of_a_pool_came_back_without_never_reached_it() -> None:
    house = House()
    house.supervisor()
    worker = house.worker(ticket=TICKET)
    house.enqueue("a")
    house.hang_up(worker.connection)
    house.worker(ticket=TICKET)
    assert (house.outcomes("a"), house.row("a").attempt, house.row("a").charged) == ([], 1, 0)


def test_job_that_was_never_started_is_no_delivery() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    house.worker("nonce-w2")
    house.worker(held=[[*house.token("a"), "unstarted"]])
    assert (house.outcomes("a"), house.row("a").attempt, house.row("a").worker[-2:]) == ([], 1, "w2")


def test_finished_job_keeps_its_lease_until_its_ack_follows() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    again = house.worker(held=[[*house.token("a"), "finished"]])
    assert (again.welcome.lost, house.state("a")) == ([], "leased")


def test_tokens_that_are_lost_are_named() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    held = [[9, 9, "running"], [8, 8, "finished"], [9, 9, "running"], [*house.token("a"), "running"]]
    assert house.worker(held=held).welcome.lost == [[9, 9], [8, 8]]


def test_finished_job_whose_lease_the_broker_ended_is_lost() -> None:
    house, worker = running()
    house.ok(house.client, m.Pause())
    house.pass_time(limits.LEASE_MS_DEFAULT)
    house.hang_up(worker.connection)
    assert house.worker(held=[[1, 1, "finished"]]).welcome.lost == [[1, 1]]


def test_unconfirmed_ack_is_not_lost_after_a_reconnect() -> None:
    house, worker = running()
    house.ack(worker, "a")
    token = house.token("a")
    house.hang_up(worker.connection)
    again = house.worker(held=[[*token, "finished"]])
    assert again.welcome.lost == []
    assert house.ok(again.connection, w.Ack(token)) == m.Done()


def test_new_hello_replaces_the_older_connection() -> None:
    house, worker = running()
    again = house.worker(held=[[*house.token("a"), "running"]])
    assert house.closed == [worker.connection]
    house.hang_up(worker.connection)
    house.ack(again, "a")
    assert house.state("a") == "done"


def test_hello_that_is_read_after_that_of_a_newer_connection_is_turned_away() -> None:
    house = House()
    older = house.connect()
    worker = house.worker()
    house.enqueue("a")
    assert house.refused(older, a_hello()) == "bad_message"
    assert house.closed == [older]
    house.ack(worker, "a")
    assert house.outcomes("a") == ["ok"]


def test_ack_on_the_replaced_connection_still_counts() -> None:
    house, worker = running()
    house.worker(held=[[*house.token("a"), "running"]])
    house.ack(worker, "a")
    assert house.state("a") == "done"


def test_worker_may_come_back_with_other_kinds_and_slots() -> None:
    house, worker = running()
    house.hang_up(worker.connection)
    house.worker(kinds=["other"], slots=2, held=[[*house.token("a"), "running"]])
    for id, kind in (("b", "send"), ("c", "other"), ("d", "other")):
        house.enqueue(id, kind)
    assert house.granted() == ["a", "c"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"ticket": b"another ticket.."}, "belongs to another supervisor"),
        ({"identity": (), "ticket": TICKET}, "needs an `identity`"),
        ({"identity": ["boot-id-2", 1, 9, 9, "nonce-w1"], "ticket": TICKET}, "has this nonce"),
    ],
)
def test_hello_that_cannot_be_true_is_turned_away(fields: dict[str, Any], text: str) -> None:
    house = House()
    house.supervised()
    connection = house.connect()
    answer = house.ask(connection, a_hello(**fields))
    assert isinstance(answer, m.Refusal)
    assert (answer.code, text in answer.message, house.closed) == ("bad_message", True, [connection])


def test_hello_of_a_dead_worker_is_turned_away() -> None:
    house = House()
    _, worker = house.supervised()
    house.die(worker.connection)
    assert house.refused(house.connect(), a_hello(ticket=TICKET)) == "bad_message"
    assert house.state("a") == "leased"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (a_hello(), a_hello(identity=identity_of("nonce-w2"))),
        (a_hello(), House.pool(House())),
        (House.pool(House()), a_hello(identity=identity_of("nonce-w2"))),
        (House.pool(House()), House.pool(House())._replace(ticket=b"another ticket..")),
    ],
)
def test_connection_introduces_itself_once(first: object, second: object) -> None:
    house = House()
    connection = house.connect()
    house.ok(connection, first)
    assert house.refused(connection, second) == "bad_message"


def test_supervisor_says_anew_what_has_changed_and_stays_connected() -> None:
    house = House()
    supervisor, _ = house.supervised()
    message = house.pool(workers=["nonce-w1"])._replace(kinds=[{"kind": "other"}], code="2-5d41402a")
    house.ok(supervisor, message)
    (shown,) = house.status()["pools"]
    assert (shown["kinds"], shown["code"], shown["connected"]) == (["other"], "2-5d41402a", True)
    assert house.closed == []
    assert house.state("a") == "leased"


def test_refused_change_of_a_supervisor_changes_nothing_and_it_stays_connected() -> None:
    house = House()
    supervisor, _ = house.supervised()
    contradiction = {"kind": "send", "backoff_ms": 2000, "backoff_cap_ms": 1000}
    assert house.refused(supervisor, house.pool()._replace(kinds=[contradiction])) == "bad_message"
    assert (house.closed, house.status()["pools"][0]["kinds"]) == ([], ["send"])


def test_restarted_worker_may_show_a_ticket_that_its_ended_attempt_did_not_tell() -> None:
    house = House()
    supervisor, worker = house.supervised()
    token = house.token("a")
    house.ack(worker, "a")
    house.restart()
    again = house.worker(ticket=TICKET, held=[[*token, "finished"]])
    assert again.welcome.lost == []
    assert house.ok(again.connection, w.Ack(token)) == m.Done()
    assert supervisor


# --- pool ---------------------------------------------------------------------------------------------------


def test_kinds_are_journalled_with_their_policy() -> None:
    house = House()
    house.supervisor(kinds=[{"kind": "send", "lease_ms": 900, "queue": None, "colour": "red"}])
    house.restart()
    assert house.status()["kinds"] == {"send": {"pool": "pool", "lease_ms": 900}}


def test_supervisor_that_says_pool_anew_replaces_its_older_connection() -> None:
    house = House()
    first = house.supervisor()
    house.supervisor()
    assert (house.closed, house.core.statistics()["pools"]) == ([first], 1)
    house.hang_up(first)
    assert house.status()["pools"][0]["connected"]


@pytest.mark.parametrize(
    "fields",
    [
        {"identity": identity_of("nonce-of-another")},
        {"kinds": [{"kind": "send", "backoff_ms": 2, "backoff_cap_ms": 1}], "ticket": b"t" * 16},
    ],
)
def test_pool_that_cannot_be_true_is_turned_away(fields: dict[str, Any]) -> None:
    house = House()
    house.supervisor()
    connection = house.connect()
    assert house.refused(connection, house.pool(**fields)) == "bad_message"
    assert house.refused(connection, w.Exited("nonce-w1", [], 0, None)) == "wrong_state"


def test_declaration_that_says_nothing_new_is_not_written_again() -> None:
    house = House()
    house.supervisor()
    connection = house.connect()
    house.step(ev.Received(connection, 900, house.pool()))
    assert not house.core.take_changes()


def test_pool_that_is_read_after_that_of_a_newer_connection_is_turned_away() -> None:
    house = House()
    older = house.connect()
    house.supervisor()
    assert house.refused(older, house.pool()) == "bad_message"
    assert (house.closed, house.status()["pools"][0]["connected"]) == ([older], True)


def another_pool(house: House, number: int, *kinds: str, nonce: str = "nonce-of-pool") -> w.Pool:
    ticket = bytes([number]) * limits.TICKET_BYTES
    identity = identity_of(f"{nonce}-{number}")
    return house.pool(ticket=ticket, identity=identity, kinds=[{"kind": kind} for kind in kinds])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> House:
    """Two pools and two kinds there may be; one of each there is."""
    monkeypatch.setattr(limits, "POOLS_MAX", 2)
    monkeypatch.setattr(limits, "KINDS_MAX", 2)
    house = House()
    house.supervisor()
    return house


def test_pool_that_is_one_too_many_is_turned_away(small: House) -> None:
    small.ok(small.connect(), another_pool(small, 1, "send"))
    turned_away = small.connect()
    assert small.refused(turned_away, another_pool(small, 2, "send")) == "pools_full"
    assert (small.closed, small.core.statistics()["pools"]) == ([turned_away], 2)


def test_known_pool_comes_back_however_many_there_are(small: House) -> None:
    small.ok(small.connect(), another_pool(small, 1, "send"))
    small.supervisor()
    assert small.core.statistics()["pools"] == 2


def test_pool_that_has_left_makes_room_at_once(small: House) -> None:
    leaver = small.connect()
    small.ok(leaver, another_pool(small, 1, "send"))
    small.hang_up(leaver)
    assert small.core.statistics()["pools"] == 2
    small.ok(small.connect(), another_pool(small, 2, "send"))
    assert [pool["connected"] for pool in small.status()["pools"]] == [True, True]


def test_pool_that_is_away_and_has_workers_keeps_its_place(small: House) -> None:
    leaver = small.connect()
    small.ok(leaver, another_pool(small, 1, "send"))
    small.worker(ticket=bytes([1]) * limits.TICKET_BYTES)
    small.hang_up(leaver)
    assert small.refused(small.connect(), another_pool(small, 2, "send")) == "pools_full"


def test_kinds_that_are_too_many_are_refused_and_none_of_them_is_known(small: House) -> None:
    turned_away = small.connect()
    assert small.refused(turned_away, another_pool(small, 1, "send", "a", "b")) == "kinds_full"
    assert (small.closed, list(small.status()["kinds"])) == ([turned_away], ["send"])
    small.ok(small.connect(), another_pool(small, 1, "send", "a"))


def test_pool_that_asks_for_too_many_more_kinds_stays_as_it_was(small: House) -> None:
    supervisor = small.supervisor()
    more = small.pool(kinds=[{"kind": kind} for kind in ("send", "a", "b")])
    assert small.refused(supervisor, more) == "kinds_full"
    assert (supervisor in small.closed, small.status()["pools"][0]["kinds"]) == (False, ["send"])


def test_kinds_that_nobody_needs_make_room_for_others_also_in_the_journal(small: House) -> None:
    supervisor = small.supervisor(kinds=[{"kind": "old"}])
    assert set(small.status()["kinds"]) == {"send", "old"}
    small.pass_time(limits.KINDS_LOOKED_MS)
    small.ok(supervisor, small.pool(kinds=[{"kind": "new"}]))
    assert set(small.status()["kinds"]) == {"old", "new"}
    small.restart()
    assert set(small.status()["kinds"]) == {"old", "new"}


def test_kinds_stay_forgotten_when_those_for_which_they_went_are_too_many_still(small: House) -> None:
    small.supervisor(kinds=[{"kind": "old"}])
    small.pass_time(limits.KINDS_LOOKED_MS)
    assert small.refused(small.connect(), another_pool(small, 1, "a", "b")) == "kinds_full"
    assert set(small.status()["kinds"]) == {"old"}
    small.restart()
    assert set(small.status()["kinds"]) == {"old"}


def test_kind_that_came_and_went_within_a_batch_is_written_once(small: House) -> None:
    supervisor = small.supervisor()
    small.pass_time(limits.KINDS_LOOKED_MS)
    for kinds in (["a"], [], ["b"]):
        small.ask_within_batch(supervisor, small.pool(kinds=[{"kind": kind} for kind in kinds]))
    changes = small.core.take_changes()
    assert [kind for kind, _, _ in changes.kinds] == ["b"]
    assert set(changes.kinds_forgotten) == {"a", "send"}


def test_kinds_of_live_jobs_and_of_other_pools_are_not_forgotten(small: House) -> None:
    small.enqueue("a")
    small.ok(small.connect(), another_pool(small, 1, "other"))
    small.pass_time(limits.KINDS_LOOKED_MS)
    assert small.refused(small.supervisor(kinds=[]), small.pool(kinds=[{"kind": "new"}])) == "kinds_full"
    assert set(small.status()["kinds"]) == {"send", "other"}


def test_kinds_are_not_forgotten_before_their_pools_could_come_back(small: House) -> None:
    small.ok(small.connect(), another_pool(small, 1, "other"))
    small.restart()
    assert small.refused(small.connect(), another_pool(small, 2, "new")) == "kinds_full"
    small.pass_time(limits.KINDS_LOOKED_MS)
    small.ok(small.connect(), another_pool(small, 2, "new"))


def test_forgotten_kind_may_come_back_before_the_next_commit(
    small: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KINDS_MAX", 3)
    small.supervisor(kinds=[{"kind": "old"}])
    supervisor = small.supervisor(kinds=[{"kind": "older"}])
    small.pass_time(limits.KINDS_LOOKED_MS)
    small.ask_within_batch(supervisor, small.pool(kinds=[{"kind": "new"}]))
    assert set(small.status()["kinds"]) == {"older", "new"}
    small.ask_within_batch(supervisor, small.pool(kinds=[{"kind": "send"}]))
    small.commit()
    small.restart()
    assert set(small.status()["kinds"]) == {"older", "new", "send"}


def test_later_declaration_counts() -> None:
    house = House()
    house.supervisor(kinds=[{"kind": "send", "lease_ms": 900}])
    house.supervisor(kinds=[{"kind": "send", "lease_ms": 700}])
    assert house.status()["kinds"]["send"]["lease_ms"] == 700


# --- ends of attempts ----------------------------------------------------------------------------------------


def test_repeated_ack_is_answered_as_the_first_was() -> None:
    house, worker = running()
    ack = w.Ack(house.token("a"))
    assert house.ok(worker.connection, ack) == house.ok(worker.connection, ack) == m.Done()


def test_repeated_ack_is_recognised_after_a_restart() -> None:
    house, worker = running()
    ack = w.Ack(house.token("a"))
    house.ok(worker.connection, ack)
    house.restart()
    again = house.worker(held=[[*ack.token, "finished"]])
    assert house.ok(again.connection, ack) == m.Done()


@pytest.mark.parametrize(
    "late",
    [w.Nack([1, 1], "error", "why"), w.Release([1, 1], "released"), w.Ack([1, 2]), w.Ack([0, 0])],
)
def test_other_word_about_an_ended_token_is_refused(late: object) -> None:
    house, worker = running()
    house.ack(worker, "a")
    assert house.refused(worker.connection, late) == "lease_lost"
    assert house.outcomes("a") == ["ok"]


@pytest.mark.parametrize(
    "message", [w.Ack([1, 1]), w.Nack([1, 1], "error", "why"), w.Release([1, 1], "released")]
)
def test_token_counts_only_from_its_holder(message: object) -> None:
    house, _ = running()
    other = house.worker("nonce-w2")
    assert house.refused(other.connection, message) == "lease_lost"
    assert house.refused(house.client, message) == "lease_lost"
    assert house.state("a") == "leased"


@pytest.mark.parametrize("second_end", ["running", "done", "dead", "dropped"])
def test_late_message_changes_nothing_of_a_newer_attempt(second_end: str) -> None:
    house, late = running()
    house.pass_time(limits.LEASE_MS_DEFAULT)
    if second_end == "dead":
        house.nack(late, "a", "permanent")
    elif second_end != "running":
        house.ack(late, "a")
    if second_end == "dropped":
        house.ok(house.client, m.Drop("a"))
    before = house.rows()
    for message in (w.Ack([1, 1]), w.Nack([1, 1], "error", "why"), w.Release([1, 1], "released")):
        assert house.refused(late.connection, message) == "lease_lost"
    assert house.ok(late.connection, w.Heartbeat([[1, 1]])).cancel == [[1, 1]]
    assert [vars_of(job) for job in house.rows()] == [vars_of(job) for job in before]


def vars_of(job: Any) -> tuple[Any, ...]:
    return tuple(getattr(job, name) for name in ("id", "state", "attempt", "charged", "token", "outcome"))


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("error", "scheduled"), ("timeout", "scheduled"), ("memory", "scheduled"), ("permanent", "dead")],
)
def test_failed_attempt_is_charged(outcome: str, state: str) -> None:
    house, worker = running()
    house.nack(worker, "a", outcome)
    assert (house.state("a"), house.row("a").charged, house.outcomes("a")) == (state, 1, [outcome])


def test_crash_of_an_attempts_own_process_is_a_crash_of_which_everything_is_kept() -> None:
    house, worker = running()
    house.nack(worker, "a", "crash", signal=11, memory_peak_bytes=5, cpu_ms=6)
    (row,) = house.show("a")["history"]
    assert (row["outcome"], row["signal"], row["status"]) == ("crash", 11, None)
    assert (row["memory_peak_bytes"], row["cpu_ms"]) == (5, 6)
    job = house.row("a")
    # The first one goes straight back, to the same worker, which lives.
    assert (job.state, job.attempt, job.charged, job.crashes) == ("leased", 2, 1, 1)


def test_handler_may_ask_for_its_delay() -> None:
    house, worker = running()
    house.nack(worker, "a", after_ms=1234)
    assert house.show("a")["due_in_ms"] == 1234


def test_handler_that_calls_itself_cancelled_has_failed() -> None:
    house, worker = running()
    house.nack(worker, "a", "cancelled")
    assert (house.state("a"), house.outcomes("a")) == ("scheduled", ["error"])


def test_ack_after_the_time_limit_is_refused_and_the_attempt_timed_out() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    token = house.token("a")
    house.pass_time(1000)
    for _ in range(2):
        assert house.refused(worker.connection, w.Ack(token)) == "lease_lost"
    assert (house.outcomes("a"), house.state("a")) == (["timeout"], "scheduled")


def test_attempt_that_was_stopped_for_its_time_says_timeout() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    house.nack(worker, "a", "cancelled")
    assert house.outcomes("a") == ["timeout"]


def test_error_during_a_kill_is_still_an_error() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    house.nack(worker, "a", "error")
    assert house.outcomes("a") == ["error"]


def test_output_of_an_attempt_is_on_record_however_it_ended() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", backoff_ms=1, backoff_cap_ms=1)
    house.nack(worker, "a", output="failing")
    house.pass_time(2)
    house.ok(worker.connection, w.Ack(house.token("a"), None, 1, "going well"))
    assert [row["output"] for row in house.show("a")["history"]] == ["failing", "going well"]


def test_output_of_an_attempt_over_its_time_is_on_record() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    house.pass_time(1000)
    assert house.refused(worker.connection, w.Ack(house.token("a"), None, 1, "too late")) == "lease_lost"
    assert [row["output"] for row in house.show("a")["history"]] == ["too late"]
