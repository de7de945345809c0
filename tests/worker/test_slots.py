"""Slots: when workers are started again, and when their deaths are a crash loop."""

import pytest

from stoker.worker.slots import (
    BACKOFF_CAP_MS,
    HEALTHY_MS,
    LOOP_DEATHS,
    Slots,
    SlotState,
    delay_ms,
)


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
    assert [slot.index for slot in Slots(3).due(0)] == [0, 1, 2]


def test_started_slot_is_not_due_again() -> None:
    slots = Slots(2)
    start(slots, 0, 0)
    assert [slot.index for slot in slots.due(0)] == [1]


def test_first_death_restarts_at_once() -> None:
    slots = Slots(1)
    start(slots, 0, 0)
    assert not die(slots, 500)
    assert slots.due(500) == [slots[0]]


def test_second_death_in_a_row_waits_a_second() -> None:
    slots = Slots(1)
    for now_ms in (0, 10):
        start(slots, 0, now_ms)
        die(slots, now_ms)
    assert slots.next_due_ms() == 1010
    assert slots.due(1009) == []


def test_delays_double_up_to_the_cap() -> None:
    assert [delay_ms(n) for n in range(8)] == [0, 0, 1000, 2000, 4000, 8000, 16000, 30000]
    assert delay_ms(10**9) == BACKOFF_CAP_MS


def test_worker_that_lived_a_minute_is_replaced_at_once() -> None:
    slots = Slots(1)
    slots[0].deaths_in_a_row = 4
    start(slots, 0, 0)
    die(slots, HEALTHY_MS)
    assert slots.next_due_ms() == HEALTHY_MS


def test_worker_that_never_came_up_was_not_healthy_however_long_it_took() -> None:
    slots = Slots(1)
    slots[0].deaths_in_a_row = 4
    start(slots, 0, 0)
    die(slots, HEALTHY_MS, came_up=False)
    assert slots.next_due_ms() == HEALTHY_MS + delay_ms(5)


def test_worker_that_finished_a_job_is_replaced_at_once() -> None:
    slots = Slots(1)
    for now_ms in range(0, 1000, 50):
        start(slots, 0, now_ms)
        assert not die(slots, now_ms, finished=True)
    assert slots.next_due_ms() == 950


def test_worker_that_was_told_to_end_counts_as_no_death() -> None:
    slots = Slots(1)
    for now_ms in range(10):
        start(slots, 0, now_ms)
        assert not die(slots, now_ms, blameless=True)
    assert slots[0].deaths_in_a_row == 0


def test_more_than_five_deaths_of_a_slot_in_a_minute_are_a_crash_loop_and_each_says_so() -> None:
    slots = Slots(1)
    loops: list[bool] = []
    for now_ms in range(0, 800, 100):
        start(slots, 0, now_ms)
        loops.append(die(slots, now_ms))
    assert loops == [False] * LOOP_DEATHS + [True] * 3
    assert slots.next_due_ms() == 700 + BACKOFF_CAP_MS


@pytest.mark.parametrize("count", [1, 4, 32])
def test_pool_whose_workers_never_come_up_starts_few(count: int) -> None:
    assert starts_within(Slots(count), 30_000, came_up=False) <= count + LOOP_DEATHS + 1


def test_stillborn_workers_of_one_slot_slow_down_the_others() -> None:
    slots = Slots(2)
    for now_ms in range(LOOP_DEATHS + 1):
        start(slots, 0, now_ms)
        die(slots, now_ms, came_up=False)
    start(slots, 1, 100)
    assert die(slots, 100, index=1, came_up=False)
    assert slots[1].not_before_ms == 100 + BACKOFF_CAP_MS


def test_slot_that_is_not_wanted_is_never_due() -> None:
    slots = Slots(1)
    slots[0].wanted = False
    assert slots.due(10**9) == []
    assert slots.next_due_ms() is None


def test_page_moves_a_worker_between_starting_idle_and_busy() -> None:
    slots = Slots(1)
    slot = slots[0]
    start(slots, 0, 0)
    states: list[SlotState] = []
    for came_up, busy in ((False, False), (True, False), (True, True), (True, False)):
        slots.observed(slot, came_up=came_up, busy=busy)
        states.append(slot.state)
    assert states == [SlotState.STARTING, SlotState.IDLE, SlotState.BUSY, SlotState.IDLE]


def test_quiet_worker_stays_quiet_whatever_its_page_says() -> None:
    slots = Slots(1)
    start(slots, 0, 0)
    slots.quieted(slots[0])
    slots.observed(slots[0], came_up=True, busy=True)
    assert slots[0].state is SlotState.QUIET


def test_killed_worker_is_stopping_until_it_is_gone() -> None:
    slots = Slots(1)
    start(slots, 0, 0)
    slots.stopped(slots[0])
    slots.quieted(slots[0])
    assert slots[0].state is SlotState.STOPPING
    die(slots, 1, blameless=True)
    assert slots[0].nonce == ""
