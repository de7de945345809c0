"""Slots: when workers are started again, and when their deaths are a crash loop."""

import pytest

from stoker.worker.flavour import Flavour
from stoker.worker.slots import (
    BACKOFF_CAP_MS,
    HEALTHY_MS,
    LOOP_DEATHS,
    Slot,
    Slots,
    SlotState,
    delay_ms,
)


def provided(count: int) -> Slots:
    slots = Slots()
    slots.provide(Flavour.PLAIN, count)
    return slots


def start(slots: Slots, index: int, now_ms: int) -> None:
    slots.started(slots[index], f"nonce-{index}", now_ms)


def die(
    slots: Slots,
    now_ms: int,
    *,
    index: int = 0,
    came_up: bool = True,
    finished: bool = False,
    blameless: bool = False,
) -> bool:
    return slots.exited(slots[index], now_ms, came_up=came_up, finished=finished, blameless=blameless)


def starts_within(slots: Slots, end_ms: int, *, came_up: bool) -> int:
    """Starts in a pool whose workers all die at once, with the clock jumping to the next due start."""
    now_ms, starts = 0, 0
    while now_ms < end_ms:
        for slot in slots.due(now_ms):
            start(slots, slot.index, now_ms)
            starts += 1
            die(slots, now_ms, index=slot.index, came_up=came_up)
        due_ms = slots.next_due_ms()
        assert due_ms is not None
        now_ms = max(due_ms, now_ms)
    return starts


def test_every_slot_of_a_new_pool_is_due() -> None:
    assert [slot.index for slot in provided(3).due(0)] == [0, 1, 2]


def test_started_slot_is_not_due_again() -> None:
    slots = provided(2)
    start(slots, 0, 0)
    assert [slot.index for slot in slots.due(0)] == [1]


def test_first_death_restarts_at_once() -> None:
    slots = provided(1)
    start(slots, 0, 0)
    assert not die(slots, 500)
    assert slots.due(500) == [slots[0]]


def test_second_death_in_a_row_waits_a_second() -> None:
    slots = provided(1)
    for now_ms in (0, 10):
        start(slots, 0, now_ms)
        die(slots, now_ms)
    assert slots.next_due_ms() == 1010
    assert slots.due(1009) == []


def test_delays_double_up_to_the_cap() -> None:
    assert [delay_ms(n) for n in range(8)] == [0, 0, 1000, 2000, 4000, 8000, 16000, 30000]
    assert delay_ms(10**9) == BACKOFF_CAP_MS


def test_worker_that_lived_a_minute_is_replaced_at_once() -> None:
    slots = provided(1)
    slots[0].deaths_in_a_row = 4
    start(slots, 0, 0)
    die(slots, HEALTHY_MS)
    assert slots.next_due_ms() == HEALTHY_MS


def test_worker_that_never_came_up_was_not_healthy_however_long_it_took() -> None:
    slots = provided(1)
    slots[0].deaths_in_a_row = 4
    start(slots, 0, 0)
    die(slots, HEALTHY_MS, came_up=False)
    assert slots.next_due_ms() == HEALTHY_MS + delay_ms(5)


def test_worker_that_finished_a_job_is_replaced_at_once() -> None:
    slots = provided(1)
    for now_ms in range(0, 1000, 50):
        start(slots, 0, now_ms)
        assert not die(slots, now_ms, finished=True)
    assert slots.next_due_ms() == 950


def test_worker_that_was_told_to_end_counts_as_no_death() -> None:
    slots = provided(1)
    for now_ms in range(10):
        start(slots, 0, now_ms)
        assert not die(slots, now_ms, blameless=True)
    assert slots[0].deaths_in_a_row == 0


def test_more_than_five_deaths_of_a_slot_in_a_minute_are_a_crash_loop_and_each_says_so() -> None:
    slots = provided(1)
    loops: list[bool] = []
    for now_ms in range(0, 800, 100):
        start(slots, 0, now_ms)
        loops.append(die(slots, now_ms))
    assert loops == [False] * LOOP_DEATHS + [True] * 3
    assert slots.next_due_ms() == 700 + BACKOFF_CAP_MS


@pytest.mark.parametrize("count", [1, 4, 32])
def test_pool_whose_workers_never_come_up_starts_few(count: int) -> None:
    assert starts_within(provided(count), 30_000, came_up=False) <= count + LOOP_DEATHS + 1


def test_stillborn_workers_of_one_slot_slow_down_the_others() -> None:
    slots = provided(2)
    for now_ms in range(LOOP_DEATHS + 1):
        start(slots, 0, now_ms)
        die(slots, now_ms, came_up=False)
    start(slots, 1, 100)
    assert die(slots, 100, index=1, came_up=False)
    assert slots[1].not_before_ms == 100 + BACKOFF_CAP_MS


def test_slot_that_is_not_wanted_is_never_due() -> None:
    slots = provided(1)
    slots[0].wanted = False
    assert slots.due(10**9) == []
    assert slots.next_due_ms() is None


def test_page_moves_a_worker_between_starting_idle_and_busy() -> None:
    slots = provided(1)
    slot = slots[0]
    start(slots, 0, 0)
    states: list[SlotState] = []
    for came_up, busy in ((False, False), (True, False), (True, True), (True, False)):
        slots.observed(slot, came_up=came_up, busy=busy)
        states.append(slot.state)
    assert states == [SlotState.STARTING, SlotState.IDLE, SlotState.BUSY, SlotState.IDLE]


def test_quiet_worker_stays_quiet_whatever_its_page_says() -> None:
    slots = provided(1)
    start(slots, 0, 0)
    slots.quieted(slots[0])
    slots.observed(slots[0], came_up=True, busy=True)
    assert slots[0].state is SlotState.QUIET


def test_killed_worker_is_stopping_until_it_is_gone() -> None:
    slots = provided(1)
    start(slots, 0, 0)
    slots.stopped(slots[0])
    slots.quieted(slots[0])
    assert slots[0].state is SlotState.STOPPING
    die(slots, 1, blameless=True)
    assert slots[0].nonce == ""


def test_flavours_have_slots_of_their_own() -> None:
    slots = provided(1)
    slots.provide(Flavour.TRIO, 2, 100)
    assert [(slot.index, slot.flavour, slot.capacity) for slot in slots.due(0)] == [
        (0, Flavour.PLAIN, 1),
        (1, Flavour.TRIO, 100),
        (2, Flavour.TRIO, 100),
    ]


def test_flavour_that_is_served_no_longer_is_not_started_and_comes_back_in_its_places() -> None:
    slots = provided(2)
    slots.provide(Flavour.PLAIN, 0)
    assert slots.due(0) == []
    slots.provide(Flavour.PLAIN, 3)
    assert [slot.index for slot in slots.due(0)] == [0, 1, 2]


# --- replacement ------------------------------------------------------------------------------------

ONE = {Flavour.PLAIN: (1, 1)}


def running(count: int) -> Slots:
    """Slots with a worker in each, all of which take jobs."""
    slots = provided(count)
    for slot in list(slots):
        slots.started(slot, f"old-{slot.index}", 0)
        slots.came_up(slot)
    return slots


def heirs(slots: Slots) -> list[Slot]:
    return [slot for slot in slots if slot.wanted and slot.state is SlotState.GONE]


def gone(slots: Slots, slot: Slot) -> None:
    slots.exited(slot, 0, came_up=True, finished=True, blameless=True)


def test_worn_worker_ends_only_when_its_heir_takes_jobs() -> None:
    slots = running(2)
    worn = slots[0]
    heir = slots.recycle(worn)
    assert slots.due(0) == [heir]
    slots.started(heir, "heir", 0)
    assert slots.replacing
    assert slots.came_up(heir) == [worn]
    assert not slots.replacing


def test_worn_worker_that_dies_is_not_started_again_beside_its_heir() -> None:
    slots = running(1)
    worn = slots[0]
    heir = slots.recycle(worn)
    gone(slots, worn)
    assert list(slots) == [heir]


def test_heir_that_dies_before_it_comes_up_is_started_again_and_the_worn_one_stays() -> None:
    slots = running(1)
    heir = slots.recycle(slots[0])
    slots.started(heir, "heir", 0)
    slots.exited(heir, 0, came_up=False, finished=False, blameless=False)
    assert slots.due(0) == [heir]
    assert slots.came_up(heir) == [slots[0]]


def test_trial_takes_nothing_from_the_places_before_it_is_accepted() -> None:
    slots = running(2)
    old = list(slots)
    assert slots.try_out({Flavour.PLAIN: (2, 1)})
    gone(slots, old[0])
    assert old[0] in slots.due(0)
    assert len([slot for slot in slots if slot.is_trial]) == 2


def test_accepted_trial_has_the_places_and_each_old_worker_waits_for_its_own_heir() -> None:
    slots = running(2)
    old = list(slots)
    slots.try_out({Flavour.PLAIN: (2, 1)})
    first, second = heirs(slots)
    slots.started(first, "new-0", 0)
    assert slots.accept() == []
    assert slots.came_up(first) == [old[0]]
    assert slots.due(0) == [second]
    gone(slots, old[1])
    assert list(slots) == [old[0], first, second]


def test_rejected_trial_leaves_everything_as_it_was() -> None:
    slots = running(1)
    (old,) = slots
    slots.try_out(ONE)
    (trial,) = heirs(slots)
    slots.started(trial, "new", 0)
    assert slots.reject() == [trial]
    assert not slots.replacing
    gone(slots, trial)
    assert list(slots) == [old]
    assert old.wanted


def test_workers_of_a_flavour_that_the_new_code_lacks_end_when_it_is_accepted() -> None:
    slots = running(1)
    slots.provide(Flavour.TRIO, 1, 100)
    coroutines = slots[1]
    slots.started(coroutines, "old-1", 0)
    slots.try_out(ONE)
    assert slots.accept() == [coroutines]


def test_flavour_that_only_the_new_code_has_gets_places_of_its_own() -> None:
    slots = running(1)
    slots.try_out({**ONE, Flavour.TRIO: (2, 100)})
    slots.accept()
    assert [(slot.flavour, slot.capacity) for slot in heirs(slots)] == [
        (Flavour.PLAIN, 1),
        (Flavour.TRIO, 100),
        (Flavour.TRIO, 100),
    ]


def test_new_code_that_overtakes_accepted_code_replaces_all_that_stand_behind_a_place() -> None:
    slots = running(1)
    (oldest,) = slots
    slots.try_out(ONE)
    slots.accept()
    (older,) = heirs(slots)
    slots.started(older, "older", 0)
    slots.try_out(ONE)
    (newest,) = heirs(slots)
    slots.started(newest, "newest", 0)
    slots.accept()
    assert slots.came_up(newest) == [older, oldest]


def test_places_stay_the_same_number_whatever_replaces_them() -> None:
    slots = running(3)
    slots.recycle(slots[1])
    slots.try_out({Flavour.PLAIN: (3, 1)})
    slots.accept()
    assert sorted(slot.index for slot in heirs(slots)) == [0, 1, 2]


def test_everything_is_up_when_every_place_is() -> None:
    slots = running(2)
    heir = slots.recycle(slots[0])
    assert not slots.all_up
    slots.started(heir, "heir", 0)
    slots.came_up(heir)
    assert slots.all_up


def test_slots_that_may_not_be_started_are_not_due() -> None:
    slots = provided(2)
    assert [slot.index for slot in slots.due(0, lambda slot: slot.index == 1)] == [1]
    assert slots.next_due_ms(lambda slot: False) is None
