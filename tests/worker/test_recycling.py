"""Recycling: when a worker is due, and that not all are at once."""

from collections.abc import Callable
from functools import partial

from stoker.proto import limits
from stoker.worker.recycling import MEMORY_LOOK_MS, NEVER, Recycling, Wear


def worn(
    recycling: Recycling, *, now_ms: int = 0, finished: int = 0, bytes: int = 0, chance: float = 0.0
) -> str:
    """Why a worker born at 0 is due."""
    wear = Wear(recycling, 0, chance)
    reason = wear.due(now_ms, finished)
    if not reason and wear.may_be_large(now_ms, lambda: bytes):
        reason = wear.due_by_memory(bytes)
    return reason


def due_after(recycling: Recycling, chance: float, finished: int) -> str:
    return worn(recycling, finished=finished, chance=chance)


def first(is_due: Callable[[int], str]) -> int:
    return next(number for number in range(10_000) if is_due(number))


def test_nothing_is_due_unless_it_was_asked_for() -> None:
    assert worn(NEVER, now_ms=10**12, finished=10**9, bytes=10**12) == ""


def test_worker_is_due_by_its_jobs() -> None:
    assert first(lambda number: worn(Recycling(jobs_max=100), finished=number)) == 100


def test_worker_is_due_by_its_age() -> None:
    assert first(lambda ms: worn(Recycling(age_ms_max=5000), now_ms=ms)) == 5000


def test_worker_is_due_by_its_memory_and_the_log_says_how_much() -> None:
    recycling = Recycling(memory_bytes_max=64 * limits.MIB)
    assert worn(recycling, bytes=64 * limits.MIB - 1) == ""
    assert worn(recycling, bytes=70 * limits.MIB) == "70 MiB of its own"


def test_each_worker_has_limits_of_its_own_below_those_that_were_set() -> None:
    recycling = Recycling(jobs_max=100, age_ms_max=5000)
    due = [first(partial(due_after, recycling, chance)) for chance in (0, 0.5, 0.999)]
    assert due == [100, 95, 90]
    assert first(lambda ms: worn(recycling, now_ms=ms, chance=0.999)) == 4500


def test_one_job_is_one_job_however_the_dice_fall() -> None:
    assert worn(Recycling(jobs_max=1), finished=0, chance=0.999) == ""
    assert worn(Recycling(jobs_max=1), finished=1, chance=0.999)


def test_memory_is_looked_at_closely_only_when_the_quick_figure_says_so_and_seldom() -> None:
    wear = Wear(Recycling(memory_bytes_max=100), 0, 0.0)
    assert not wear.may_be_large(0, lambda: 99)
    assert wear.may_be_large(1, lambda: 100)
    assert not wear.may_be_large(MEMORY_LOOK_MS, lambda: 100)
    assert wear.may_be_large(MEMORY_LOOK_MS + 1, lambda: 100)
