"""Figures by the minute: state as it is, and the failures since the last time after which a job runs again."""

from typing import Any

import pytest
from support.core_builders import House, WorkerPeer

from stoker.broker.core.figures import Figures, Minute
from stoker.proto import limits
from stoker.proto import work as w


def figures(house: House) -> dict[str, Figures]:
    return {row.queue: row for row in minute(house).rows}


def minute(house: House) -> Minute:
    return house.core.take_figures(house.clock.now())


def retries(house: House) -> int:
    return figures(house)["default"].retries


def running(house: House, **fields: Any) -> WorkerPeer:
    """A worker that runs job `a`."""
    worker = house.worker()
    house.enqueue("a", **fields)
    return worker


def test_every_state_is_counted() -> None:
    house = House()
    worker = running(house)
    house.ack(worker, "a")
    for number in range(3):
        house.enqueue(f"b-{number}")
    house.enqueue("later", delay_ms=1000)
    row = figures(house)["default"]
    assert (row.ready, row.leased, row.scheduled, row.done, row.dead) == (2, 1, 1, 1, 0)


def test_oldest_ready_job_tells_how_long_it_has_waited() -> None:
    house = House()
    house.enqueue("a")
    house.clock.pass_time(48_000)
    house.enqueue("b")
    assert figures(house)["default"].oldest_ready_ms == 48_000


def test_queue_at_rest_has_nothing_to_say() -> None:
    house = House()
    house.ack(running(house), "a")
    assert minute(house) == Minute([], 0, Figures("", 0, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("outcome", ["error", "timeout", "memory", "crash"])
def test_failure_after_which_the_job_runs_again_is_a_retry(outcome: str) -> None:
    house = House()
    house.nack(running(house), "a", outcome)
    assert retries(house) == 1


def test_failure_that_makes_a_job_dead_is_none() -> None:
    house = House()
    house.nack(running(house, attempts_max=1), "a")
    row = figures(house)["default"]
    assert (row.dead, row.retries) == (1, 0)


@pytest.mark.parametrize("reason", ["released", "shutdown", "not_started"])
def test_job_given_back_without_fault_is_none(reason: str) -> None:
    house = House()
    worker = running(house)
    house.ok(worker.connection, w.Release(house.token("a"), reason))
    assert retries(house) == 0


def test_crash_among_several_jobs_is_a_retry_of_each() -> None:
    house = House()
    supervisor = house.supervisor(workers=["nonce-w1"])
    worker = house.worker("nonce-w1", ticket=house.pool().ticket, slots=2)
    for id in ("a", "b"):
        house.enqueue(id)
    tokens = [house.token("a"), house.token("b")]
    house.die(worker.connection)
    house.ok(supervisor, w.Exited("nonce-w1", tokens, None, 9))
    assert retries(house) == 2


def test_retries_are_counted_anew_after_each_minute() -> None:
    house = House()
    house.nack(running(house), "a")
    assert [retries(house), retries(house)] == [1, 0]


def test_only_so_many_queues_are_named_and_the_rest_is_summed_up() -> None:
    house = House()
    for number in range(limits.FIGURES_MAX + 3):
        house.enqueue(f"job-{number}", queue=f"q{number:03}")
        house.clock.pass_time(1000)
    found = minute(house)
    assert [row.queue for row in found.rows] == [f"q{number:03}" for number in range(limits.FIGURES_MAX)]
    assert (found.left_out, found.rest.ready, found.rest.oldest_ready_ms) == (3, 3, 3000)
