"""Which ids called fresh are believed, and what is remembered for that."""

import pytest
from support.core_builders import fresh_id

from stoker.broker.core.events import Now
from stoker.broker.core.freshness import FreshIds, made_at
from stoker.proto import limits

START_MS = 1_700_000_000_000
LATER_MS = START_MS + 60_000


def at(wall_ms: int) -> Now:
    return Now(0, 0, wall_ms)


def ids_since_start() -> FreshIds:
    return FreshIds(at(START_MS))


def test_id_of_this_moment_is_believed() -> None:
    assert ids_since_start().believes(fresh_id(LATER_MS), at(LATER_MS))


def test_id_that_was_taken_is_not_believed_again() -> None:
    ids = ids_since_start()
    ids.take(fresh_id(LATER_MS), at(LATER_MS))
    assert not ids.believes(fresh_id(LATER_MS), at(LATER_MS + 1))


def test_other_id_of_the_same_moment_is_believed() -> None:
    ids = ids_since_start()
    ids.take(fresh_id(LATER_MS, 1), at(LATER_MS))
    assert ids.believes(fresh_id(LATER_MS, 2), at(LATER_MS))


@pytest.mark.parametrize(("age_ms", "believed"), [(-5001, False), (-5000, True), (5000, True), (5001, False)])
def test_id_is_believed_for_a_few_seconds(age_ms: int, believed: bool) -> None:
    assert ids_since_start().believes(fresh_id(LATER_MS), at(LATER_MS + age_ms)) is believed


@pytest.mark.parametrize("after_ms", [-1000, 0, limits.FRESH_MS])
def test_id_that_an_earlier_start_may_know_is_not_believed(after_ms: int) -> None:
    made_ms = START_MS + after_ms
    assert not ids_since_start().believes(fresh_id(made_ms), at(made_ms))


def test_taken_id_is_never_believed_while_the_clock_goes_back_and_forth() -> None:
    ids = ids_since_start()
    ids.take(fresh_id(LATER_MS), at(LATER_MS))
    for wall_ms in (LATER_MS - 3_600_000, LATER_MS - 1, LATER_MS + 4000, LATER_MS - 9000):
        ids.time_passed(at(wall_ms))
        assert not ids.believes(fresh_id(LATER_MS), at(wall_ms))


def test_taken_ids_are_forgotten_when_they_are_believed_no_more() -> None:
    ids = ids_since_start()
    for number in range(100):
        ids.take(fresh_id(LATER_MS, number), at(LATER_MS))
    assert len(ids) == 100
    ids.time_passed(at(LATER_MS + 3 * limits.FRESH_MS))
    assert len(ids) == 0


def test_id_of_another_time_is_not_remembered() -> None:
    ids = ids_since_start()
    ids.take(fresh_id(START_MS), at(LATER_MS))
    ids.take("order-123", at(LATER_MS))
    assert len(ids) == 0


@pytest.mark.parametrize(
    ("id", "made_ms"),
    [
        (fresh_id(START_MS), START_MS),
        ("order-123", -1),
        ("018bcfe5-6800-4000-8000-000000000000", -1),
        ("01:bcfe5-6800-7000-8000-000000000000", -1),
    ],
)
def test_time_is_read_from_version_7_alone(id: str, made_ms: int) -> None:
    assert made_at(id) == made_ms
