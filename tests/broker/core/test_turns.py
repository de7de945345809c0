"""Which queues a worker takes jobs from, and in which order."""

from collections import Counter
from typing import Any

import pytest
from support.core_builders import KIND, House

from stoker.broker.core.turns import Turns, contradiction, turns_of
from stoker.proto import messages as m
from stoker.proto import work as w


def test_nothing_said_is_no_turns_of_its_own() -> None:
    assert turns_of([]) is None


def test_turns_follow_the_weights_and_are_spread() -> None:
    turns = Turns({"a": 3, "b": 1})
    chosen = [turns.choose({"a", "b"}) for _ in range(8)]
    assert Counter(chosen) == {"a": 6, "b": 2}
    assert "b" in chosen[:4] and "b" in chosen[4:]


def test_queue_that_was_empty_has_saved_nothing_up() -> None:
    turns = Turns({"a": 1, "b": 1})
    for _ in range(10):
        assert turns.choose({"a"}) == "a"
    assert Counter(turns.choose({"a", "b"}) for _ in range(4)) == {"a": 2, "b": 2}


def worker_of(house: House, *queues: list[Any], nonce: str = "nonce-w1") -> int:
    """The connection of a worker that takes jobs from these queues."""
    connection = house.connect()
    identity = ["boot-id-1", 1, 100, 5, nonce]
    house.ok(connection, m.Hello(1, "work", nonce, identity, b"", [KIND], 1, [], list(queues)))
    return connection


def served(house: House, connection: int, count: int) -> list[str]:
    """Ids of the next jobs that the worker gets, each acked."""
    ids = list[str]()
    for _ in range(count):
        ((_, job),) = house.pushed(w.Job)
        ids.append(job.id)
        house.ok(connection, w.Ack(job.token))
    return ids


def stocked() -> House:
    house = House()
    for number in range(4):
        for queue in ("mail", "default", "other"):
            house.enqueue(f"{queue}-{number}", queue=queue)
    return house


def test_order_is_strict() -> None:
    house = stocked()
    connection = worker_of(house, ["default", 0], ["mail", 0])
    assert served(house, connection, 8) == [f"{q}-{n}" for q in ("default", "mail") for n in range(4)]
    assert house.state("other-0") == "ready"


def test_weights_share_the_turns() -> None:
    house = stocked()
    connection = worker_of(house, ["default", 3], ["mail", 1])
    assert Counter(id.split("-")[0] for id in served(house, connection, 4)) == {"default": 3, "mail": 1}


def test_job_goes_past_an_idle_worker_that_does_not_take_its_queue() -> None:
    house = House()
    worker_of(house, ["mail", 0])
    house.enqueue("a", queue="other")
    assert house.state("a") == "ready"
    assert house.why("a") == f"no connected worker that knows kind {KIND} takes jobs from queue other"
    worker_of(house, ["other", 0], nonce="nonce-w2")
    assert house.show("a")["worker"] == "nonce-w2"


def test_paused_queue_has_no_turn() -> None:
    house = stocked()
    house.ok(house.client, m.Pause("default"))
    connection = worker_of(house, ["default", 0], ["mail", 0])
    assert served(house, connection, 1) == ["mail-0"]


@pytest.mark.parametrize(
    ("queues", "wrong"),
    [
        ([["a", 0], ["a", 0]], "a queue is named twice"),
        ([["a", 1], ["b", 0]], "either all queues have a weight or none"),
    ],
)
def test_contradiction_is_refused(queues: list[list[Any]], wrong: str) -> None:
    house = House()
    connection = house.connect()
    hello = m.Hello(1, "work", "w", ["boot-id-1", 1, 100, 5, "nonce-w1"], b"", [KIND], 1, [], queues)
    assert wrong in contradiction(queues)
    assert house.refused(connection, hello) == "bad_message"
