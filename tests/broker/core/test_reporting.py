"""What people ask: show, why, status. Each value comes from state."""

from collections.abc import Callable

import pytest
from support.core_builders import TICKET, House, identity_of, rules_of

from stoker.broker.core import events as ev
from stoker.broker.core.reporting import row
from stoker.broker.core.rules import Rules
from stoker.broker.core.workers import identity_text
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.queuerules import QueueRules

# --- show ---------------------------------------------------------------------------------------------


def test_show_has_everything_of_a_job() -> None:
    house = House()
    house.enqueue("a", priority=3, lease_ms=700, headers={"trace": "1"})
    shown = house.ok(house.client, m.Show("a", payload=True)).job
    assert (shown["payload"], shown["headers"], shown["policy"]["lease_ms"]) == (
        b"payload",
        {"trace": "1"},
        700,
    )
    assert (shown["state"], shown["priority"], shown["token"], shown["worker"]) == ("ready", 3, None, "")
    assert "payload" not in house.show("a")


def test_show_counts_down_what_a_job_waits_for() -> None:
    house = House()
    house.enqueue("a", delay_ms=1000, expires_ms=3000)
    house.clock.pass_time(400)
    shown = house.show("a")
    assert (shown["due_in_ms"], shown["run_at_ms"], shown["expires_in_ms"]) == (600, None, 2600)


def test_show_of_a_dated_job_has_its_date() -> None:
    house = House()
    at_ms = house.clock.now().wall_ms + 5000
    house.enqueue("a", run_at_ms=at_ms)
    assert (house.show("a")["due_in_ms"], house.show("a")["run_at_ms"]) == (None, at_ms)


def test_finished_job_expires_no_more() -> None:
    house = House()
    house.enqueue("a", expires_ms=3000)
    house.cancel("a")
    assert house.show("a")["expires_in_ms"] is None


def test_show_names_the_worker_and_its_token() -> None:
    house = House()
    house.worker()
    house.enqueue("a")
    assert (house.show("a")["worker"], house.show("a")["token"]) == ("nonce-w1", [1, 1])


def test_show_of_an_unknown_job_is_refused() -> None:
    house = House()
    assert house.refused(house.client, m.Show("nobody")) == "job_not_found"


def test_listed_job_is_a_short_show() -> None:
    house = House()
    house.enqueue("a")
    listed = row(house.row("a"))
    assert listed.items() <= house.show("a").items()


# --- progress ---------------------------------------------------------------------------------------


def at_work() -> tuple[House, int]:
    """Job `a` on a worker that has said how far it is, two seconds ago."""
    house = House()
    worker = house.worker()
    house.enqueue("a")
    assert house.ask(worker.connection, w.Progress(house.token("a"), 3, 12, "pages")) is None
    house.pass_time(2000)
    return house, worker.connection


def test_last_progress_is_shown_while_the_attempt_runs() -> None:
    house, worker = at_work()
    shown = {"done": 3, "total": 12, "text": "pages", "ago_ms": 2000}
    assert house.show("a")["progress"] == shown
    assert house.why("a").endswith("it said 2s ago how far it is: 3 of 12 (25 %): pages")
    house.ask(worker, w.Progress(house.token("a"), None, None, "indexing"))
    assert house.show("a")["progress"] == {"done": None, "total": None, "text": "indexing", "ago_ms": 0}


def test_progress_ends_with_its_attempt() -> None:
    house, worker = at_work()
    house.ok(worker, w.Nack(house.token("a"), "error", "no such host", after_ms=0))
    assert (house.state("a"), house.show("a")["attempt"], house.show("a")["progress"]) == ("leased", 2, None)


def test_progress_of_a_token_that_is_no_longer_live_is_dropped_in_silence() -> None:
    house, worker = at_work()
    stale = house.token("a")
    house.ok(worker, w.Nack(stale, "error", "no such host", after_ms=0))
    other = house.worker("nonce-w2").connection
    assert house.ask(worker, w.Progress(stale, 12, 12)) is None
    assert house.ask(other, w.Progress(house.token("a"), 12, 12)) is None
    assert house.show("a")["progress"] is None


def test_progress_is_written_nowhere() -> None:
    house, worker = at_work()
    house.step(ev.Received(worker, 900, w.Progress(house.token("a"), 12, 12)))
    assert not house.core.take_changes()


# --- why ----------------------------------------------------------------------------------------------------


def nothing(house: House) -> None:
    pass


def pause_all(house: House) -> None:
    house.ok(house.client, m.Pause())


def pause_one(house: House) -> None:
    house.ok(house.client, m.Pause("default"))


def drain(house: House) -> None:
    house.ok(house.client, m.Drain())


def stop(house: House) -> None:
    house.event(ev.StopRequested())


def busy(house: House) -> None:
    house.worker()
    house.enqueue("first")
    house.enqueue("second")


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (nothing, "no connected worker knows kind send"),
        (pause_all, "all queues are paused: `stoker resume` ends that"),
        (pause_one, "queue default is paused: `stoker resume default` ends that"),
        (drain, "the broker is draining: `stoker resume` ends that"),
        (stop, "the broker is stopping"),
        (busy, "every worker that knows kind send is busy"),
        (busy, "job second is before it in queue default (priority, then arrival)"),
    ],
)
def test_why_a_ready_job_does_not_run(prepare: Callable[[House], None], reason: str) -> None:
    house = House()
    house.enqueue("a", priority=1, delay_ms=1)
    prepare(house)
    house.pass_time(1)
    assert reason in house.why("a")


def test_why_says_how_to_start_a_pool_only_if_there_is_none() -> None:
    house = House()
    house.enqueue("a")
    assert "start one with `stoker pool APP`" in house.why("a")
    house.supervisor(kinds=[{"kind": "other"}])
    assert house.why("a") == "no connected worker knows kind send"


def test_figures_that_nobody_took_are_nothing() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.ack(worker, "a")
    (row,) = house.show("a")["history"]
    assert (row["memory_peak_bytes"], row["cpu_ms"]) == (None, None)


def test_job_of_a_known_kind_is_held_back_by_the_pause_alone() -> None:
    house = House()
    house.worker()
    house.ok(house.client, m.Pause())
    house.enqueue("a")
    assert house.why("a") == "all queues are paused: `stoker resume` ends that"


def test_next_job_waits_for_a_worker_alone() -> None:
    house = House()
    busy(house)
    assert house.why("second") == "every worker that knows kind send is busy"


def test_why_a_scheduled_job_waits() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", backoff_ms=500)
    house.nack(worker, "a")
    assert house.why("a") == "it becomes ready in 500ms\nattempt 1 ended with error: no such host"


def test_why_a_dated_job_waits() -> None:
    house = House()
    house.enqueue("a", run_at_ms=house.clock.now().wall_ms + 5000)
    assert house.why("a") == "it runs at its date, in 5s"


def test_why_a_running_job_is_where_it_is() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a", time_limit_ms=1000)
    assert house.why("a") == "attempt 1 belongs to worker nonce-w1 (pid 100)"
    house.pass_time(1000)
    assert "its process is being ended: timeout" in house.why("a")
    house.cancel("a")
    assert "it is being cancelled" in house.why("a")
    house.hang_up(worker.connection)
    assert "the worker is disconnected and has 10s left to come back" in house.why("a")


def test_why_a_job_waits_for_the_report_of_a_dead_worker() -> None:
    house = House()
    _, worker = house.supervised()
    house.die(worker.connection)
    assert "its supervisor has yet to report that nothing of it lives" in house.why("a")


def test_why_does_not_say_that_nobody_can_end_what_its_supervisor_can() -> None:
    house = House()
    _, worker = house.supervised()
    house.hang_up(worker.connection)
    house.cancel("a")
    assert "nobody" not in house.why("a")


@pytest.mark.parametrize(
    ("outcome", "text"), [("permanent", "it is dead: permanent error: no such host"), (None, "it is done")]
)
def test_why_a_finished_job_has_ended(outcome: str | None, text: str) -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    if outcome is None:
        house.ack(worker, "a")
    else:
        house.nack(worker, "a", outcome)
    assert house.why("a") == text


def test_why_of_an_unknown_job_is_refused() -> None:
    house = House()
    assert house.refused(house.client, m.Why("nobody")) == "job_not_found"


# --- status -----------------------------------------------------------------------------------------------------


def test_status_counts_jobs_by_queue_and_in_all() -> None:
    house = House()
    worker = house.worker()
    for id, queue in (("a", "mail"), ("b", "mail"), ("c", "video")):
        house.enqueue(id, queue=queue)
    house.ack(worker, "a")
    status = house.ok(house.client, m.Status()).status
    mail = status["queues"]["mail"]
    assert (mail["done"], mail["leased"], mail["ready"], mail["bytes"]) == (1, 1, 0, 7)
    assert (status["totals"]["ready"], status["totals"]["leased"], status["totals"]["done"]) == (1, 1, 1)


def test_status_shows_the_age_of_the_oldest_ready_job() -> None:
    house = House()
    house.enqueue("a")
    house.clock.pass_time(300)
    house.enqueue("b")
    assert house.status()["queues"]["default"]["oldest_ready_ms"] == 300


def test_age_of_the_oldest_ready_job_survives_a_restart() -> None:
    house = House()
    house.enqueue("a")
    house.clock.pass_time(300)
    house.restart()
    assert house.status()["queues"]["default"]["oldest_ready_ms"] == 300


def test_status_shows_workers_and_what_they_do() -> None:
    house = House()
    _, worker = house.supervised()
    house.worker("nonce-w2")
    shown = {each["name"]: (each["state"], each["jobs"]) for each in house.status()["workers"]}
    assert shown == {"nonce-w1": ("busy", ["a"]), "nonce-w2": ("idle", [])}
    house.die(worker.connection)
    assert house.status()["workers"][0]["state"] == "gone"


def test_status_shows_a_worker_that_is_away() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.hang_up(worker.connection)
    (shown,) = house.status()["workers"]
    assert (shown["state"], shown["pool"]) == ("disconnected", "")


def test_status_shows_pools() -> None:
    house = House()
    house.supervised()
    (shown,) = house.status()["pools"]
    assert shown == {
        "name": "pool",
        "pid": 100,
        "identity": identity_text(identity_of("nonce-supervisor")),
        "connected": True,
        "workers": 1,
        "kinds": ["send"],
        "kinds_left_out": 0,
        "code": None,
        "reload": None,
    }
    assert house.status()["workers"][0]["pool"] == "pool"


def test_status_shows_the_code_of_a_pool_and_its_last_reload() -> None:
    house = House()
    house.supervisor(code="3-5d41402a", reload_state="done", reload_mono_ms=77)
    (shown,) = house.status()["pools"]
    assert (shown["code"], shown["reload"]) == ("3-5d41402a", {"state": "done", "mono_ms": 77, "error": None})
    assert house.status()["warnings"] == []


def test_failed_reload_is_a_warning() -> None:
    house = House()
    house.supervisor(code="3-5d41402a", reload_state="failed", reload_mono_ms=77, reload_error="SyntaxError")
    assert house.status()["pools"][0]["reload"]["error"] == "SyntaxError"
    assert "the old code goes on serving" in house.status()["warnings"][0]


def test_every_attempt_shows_the_code_that_ran_it() -> None:
    house = House()
    house.supervisor()
    worker = house.worker("0123456789abcdef-3-5d41402a", ticket=TICKET)
    house.enqueue("a")
    assert house.show("a")["code"] == "3-5d41402a"
    house.ack(worker, "a")
    assert [row["code"] for row in house.show("a")["history"]] == ["3-5d41402a"]


def test_attempt_of_a_worker_that_does_not_tell_its_code_shows_none() -> None:
    house = House()
    _, worker = house.supervised()
    house.ack(worker, "a")
    assert [row["code"] for row in house.show("a")["history"]] == [None]


def test_status_of_very_many_queues_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_ROWS_MAX", 2)
    house = House(checked=False)
    for number in range(5):
        house.enqueue(f"job-{number}", queue=f"queue-{number}")
        if number < 3:
            house.cancel(f"job-{number}")
    status = house.status()
    assert (list(status["queues"]), status["left_out"]["queues"]) == (["queue-3", "queue-4"], 3)
    assert (status["totals"]["ready"], status["totals"]["cancelled"]) == (2, 3)


def test_rows_of_pools_and_workers_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATUS_ROW_ITEMS_MAX", 2)
    house = House()
    house.supervisor(kinds=[{"kind": kind} for kind in ("send", "c", "a", "b")])
    house.worker(slots=3)
    for id in ("one", "two", "three"):
        house.enqueue(id)
    (pool,), (worker,) = house.status()["pools"], house.status()["workers"]
    assert (pool["kinds"], pool["kinds_left_out"]) == (["a", "b"], 2)
    assert (worker["jobs"], worker["jobs_left_out"]) == (["one", "two"], 1)


def test_status_shows_what_a_queue_allows() -> None:
    house = House(Rules(queues={"mail": QueueRules(jobs_max=3, bytes_max=100)}))
    house.enqueue("a", queue="mail")
    mail = house.status()["queues"]["mail"]
    assert (mail["jobs_max"], mail["bytes_max"], mail["overflow"], mail["waiting_for_room"]) == (
        3,
        100,
        "reject",
        0,
    )


# --- warnings ------------------------------------------------------------------------------------------------------


def test_all_is_well_without_warnings() -> None:
    house = House()
    house.supervised()
    assert house.status()["warnings"] == []


def test_kind_that_nobody_knows_is_a_warning() -> None:
    house = House()
    house.enqueue("a")
    assert house.status()["warnings"] == ["queue default: no connected worker knows kind send"]


def test_dead_jobs_are_a_warning() -> None:
    house = House()
    worker = house.worker()
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    assert house.status()["warnings"] == ["queue default: dead jobs that need a person: 1"]


def test_full_disk_is_a_warning() -> None:
    house = House()
    house.event(ev.StorageChanged(True))
    assert house.status()["warnings"] == ["the disk is full or nearly so: enqueues are refused"]


def test_pools_that_declare_a_kind_differently_are_a_warning_while_both_are_there() -> None:
    house = House()
    house.supervisor(name="one", kinds=[{"kind": "send", "lease_ms": 700}, {"kind": "same"}])
    second = house.supervisor(
        name="two",
        ticket=b"another ticket..",
        identity=identity_of("nonce-two"),
        kinds=[{"kind": "send", "lease_ms": 900}, {"kind": "same"}],
    )
    assert house.status()["warnings"] == ["pools one and two declare kind send differently"]
    house.hang_up(second)
    assert house.status()["warnings"] == []


def test_warnings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WARNINGS_MAX", 3)
    house = House(rules_of(), checked=False)
    for number in range(5):
        house.enqueue(f"job-{number}", f"kind-{number}")
    warnings = house.status()["warnings"]
    assert (len(warnings), warnings[-1]) == (4, "there are more than these 3 warnings")


def test_status_works_while_the_broker_stops() -> None:
    house = House()
    house.event(ev.StopRequested())
    assert house.ok(house.client, m.Status()).status["epoch"] == 1
    assert house.refused(house.client, w.Ack([1, 1])) == "lease_lost"
