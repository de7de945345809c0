"""What the core has logged of jobs: what a person must know, and not every ack."""

from typing import Any

import pytest
from support.core_builders import House, rules_of

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto.model import Overflow


class ListeningHouse(House):
    """Keeps the fields of what is logged."""

    def __init__(self, **rules: Any) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        super().__init__(rules_of(**rules))

    def _take(self, effects: Any) -> None:
        self.said += [(effect.event, effect.fields) for effect in effects if isinstance(effect, fx.Log)]
        super()._take(effects)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.said if name == event]


def test_job_that_became_dead_is_said_with_its_reason() -> None:
    house = ListeningHouse()
    worker = house.worker()
    house.enqueue("a", queue="mail")
    house.nack(worker, "a", "permanent")
    assert house.named("job_dead") == [
        {
            "kind": "send",
            "id": "a",
            "queue": "mail",
            "attempt": 1,
            "outcome": "permanent",
            "reason": "permanent error: no such host",
        }
    ]


def test_job_that_expired_is_said_without_an_outcome() -> None:
    house = ListeningHouse()
    house.enqueue("a", expires_ms=10)
    house.pass_time(11)
    (said,) = house.named("job_dead")
    assert (said["outcome"], said["attempt"]) == ("none", 0)


def test_jobs_that_go_well_or_run_again_or_are_cancelled_are_not_said() -> None:
    house = ListeningHouse()
    worker = house.worker()
    for id in ("good", "failing", "unwanted"):
        house.enqueue(id)
    house.ack(worker, "good")
    house.nack(worker, "failing")
    house.cancel("unwanted")
    assert house.said == []


@pytest.mark.parametrize("overflow", ["reject", "wait", "dead"])
def test_full_queue_is_said_once_in_a_while(overflow: str) -> None:
    house = ListeningHouse(jobs_max=1, overflow=Overflow(overflow))
    house.enqueue("a")
    for number in range(3):
        house.ask(house.client, m.Enqueue(f"more-{number}", "send", b"x"))
    (said,) = house.named("queue_full")
    assert (said["queue"], said["jobs"], said["jobs_max"]) == ("default", 1, 1)
    house.clock.pass_time(limits.FULL_SAID_MS)
    house.ask(house.client, m.Enqueue("again", "send", b"x"))
    assert len(house.named("queue_full")) == 2


def test_dead_letter_of_a_full_queue_is_a_dead_job_like_any_other() -> None:
    house = ListeningHouse(jobs_max=1, overflow=Overflow("dead"))
    house.enqueue("a")
    house.enqueue("b")
    assert [said["id"] for said in house.named("job_dead")] == ["b"]


def test_memory_of_ids_that_is_full_is_said() -> None:
    house = ListeningHouse()
    house.event(ev.IdsForgotten(-limits.IDS_KEPT_MAX))
    assert house.refused(house.client, m.Enqueue("a", "send", b"x")) == "ids_full"
    assert len(house.named("ids_full")) == 1
