"""Notices of deaths: one for each, made in the same step, in whatever way a job becomes dead."""

import json
from typing import Any

import pytest
from support.core_builders import KIND, House, rules_of

from stoker.broker.core.job import COLUMNS
from stoker.broker.core.rules import Rules
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.model import LIVE_STATES, Overflow

NOTICE = f"{KIND}.on_dead"


def house_that_tells(rules: Rules | None = None) -> House:
    """A pool has declared the kind, and which kind is told of its deaths."""
    house = House(rules)
    house.supervisor(kinds=[{"kind": KIND, "dead_kind": NOTICE, "priority": 3}, {"kind": NOTICE}])
    return house


def notices(house: House) -> list[Any]:
    """Jobs of the notices' kind that live."""
    return [job for job in house.rows() if job.kind == NOTICE and job.state in LIVE_STATES]


def test_death_makes_a_notice_that_says_what_is_known() -> None:
    house = house_that_tells()
    worker = house.worker()
    house.enqueue("a", headers={"tenant": "x"})
    house.nack(worker, "a", "permanent")
    (notice,) = notices(house)
    (known,) = json.loads(house.journal.payload(notice.number))
    row = house.show("a")
    assert (notice.state, notice.queue, notice.priority) == ("ready", "default", 3)
    assert (known["id"], known["kind"], known["queue"], known["attempt"]) == ("a", KIND, "default", 1)
    assert (known["outcome"], known["headers"]) == ("permanent", {"tenant": "x"})
    assert (known["reason"], known["finished_at_ms"]) == (row["reason"], row["finished_at_ms"])


def test_worker_that_knows_the_kind_gets_it_at_once() -> None:
    house = house_that_tells()
    worker = house.worker()
    other = house.worker("nonce-w2", kinds=[NOTICE])
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    (push,) = [(peer, job) for peer, job in house.pushed(w.Job) if job.kind == NOTICE]
    assert push[0] == other.connection


def test_expiry_and_crashes_are_deaths_too() -> None:
    house = house_that_tells()
    house.enqueue("late", expires_ms=100)
    house.pass_time(200)
    worker = house.worker()
    house.enqueue("crasher", crashes_max=1)
    house.nack(worker, "crasher", "crash")
    assert [json.loads(house.journal.payload(job.number))[0]["id"] for job in notices(house)] == [
        "late",
        "crasher",
    ]


def test_overflow_that_makes_a_dead_letter_is_told() -> None:
    house = house_that_tells(rules_of(jobs_max=1, overflow=Overflow.DEAD))
    house.enqueue("a")
    house.enqueue("b")
    assert house.state("b") == "dead"
    assert len(notices(house)) == 1


@pytest.mark.parametrize("outcome", ["error", "ok", "cancel"])
def test_other_ends_are_no_deaths(outcome: str) -> None:
    house = house_that_tells()
    worker = house.worker()
    house.enqueue("a")
    if outcome == "ok":
        house.ack(worker, "a")
    elif outcome == "error":
        house.nack(worker, "a")
    else:
        house.enqueue("b")
        house.cancel("b")
    assert notices(house) == []


def test_death_of_a_notice_is_told_to_nobody() -> None:
    house = house_that_tells()
    worker = house.worker(kinds=[KIND, NOTICE])
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    (notice,) = notices(house)
    house.nack(worker, notice.id, "permanent")
    assert notices(house) == []
    assert [job.id for job in house.rows() if job.state == "dead"] == ["a", notice.id]


def test_kind_that_declares_none_has_no_notices() -> None:
    house = House()
    house.supervisor()
    worker = house.worker()
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    assert [job.id for job in house.rows()] == ["a"]


def test_each_death_of_a_kicked_job_has_its_notice() -> None:
    house = house_that_tells()
    worker = house.worker()
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    house.ok(house.client, m.Kick("a"))
    house.nack(worker, "a", "permanent")
    assert len({job.id for job in notices(house)}) == 2


def test_notice_is_in_the_transaction_of_the_death() -> None:
    house = house_that_tells()
    worker = house.worker()
    house.enqueue("a")
    house.ask_within_batch(worker.connection, w.Nack(house.token("a"), "permanent", "no"))
    changes = house.core.take_changes()
    states = {image[COLUMNS.index("kind")]: image[COLUMNS.index("state")] for image in changes.images}
    assert states == {KIND: "dead", NOTICE: "ready"}
    assert len(changes.payloads) == 1


def test_it_survives_a_restart() -> None:
    house = house_that_tells()
    worker = house.worker()
    house.enqueue("a")
    house.nack(worker, "a", "permanent")
    before = [job.id for job in notices(house)]
    house.restart()
    house.client = house.connect()
    assert [job.id for job in notices(house)] == before
    # What a pool declared is journalled, so deaths before it is back are told as well.
    house.enqueue("late", expires_ms=100)
    house.pass_time(200)
    assert len(notices(house)) == 2
