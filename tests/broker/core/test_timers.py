"""Instants in order, and a heap that does not outgrow what it stands for."""

from stoker.broker.core.timers import SWEEP_SLACK, Timers


class Instants:
    """The truth that timers ask: which instant of which number holds."""

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.timers = Timers(lambda instant, number: self.at.get(number) == instant)

    def set(self, instant: int, number: int) -> None:
        self.at[number] = instant
        self.timers.set(instant, number)


def test_numbers_come_out_in_the_order_of_their_instants() -> None:
    instants = Instants()
    for number, instant in enumerate((30, 10, 20)):
        instants.set(instant, number)
    assert [instants.timers.pop_due(30) for _ in range(4)] == [1, 2, 0, None]


def test_nothing_is_due_before_its_instant() -> None:
    instants = Instants()
    instants.set(10, 1)
    assert (instants.timers.pop_due(9), instants.timers.pop_due(10)) == (None, 1)


def test_stale_entry_is_passed_over() -> None:
    instants = Instants()
    instants.set(10, 1)
    instants.set(20, 1)
    assert instants.timers.next_instant() == 20
    assert (instants.timers.pop_due(19), instants.timers.pop_due(20)) == (None, 1)


def test_stale_entry_that_is_due_is_not_given_out() -> None:
    instants = Instants()
    instants.set(10, 1)
    del instants.at[1]
    assert instants.timers.pop_due(10) is None


def test_next_instant_of_nothing_is_none() -> None:
    assert Instants().timers.next_instant() is None


def test_sweep_drops_stale_entries_once_they_are_the_majority() -> None:
    instants = Instants()
    for instant in range(SWEEP_SLACK + 3):
        instants.set(instant, 1)
    instants.timers.sweep(1)
    assert len(instants.timers) == 1
    assert instants.timers.next_instant() == SWEEP_SLACK + 2


def test_sweep_leaves_few_stale_entries_alone() -> None:
    instants = Instants()
    for instant in range(10):
        instants.set(instant, 1)
    instants.timers.sweep(1)
    assert len(instants.timers) == 10


def test_sweep_drops_entries_that_say_the_same_again() -> None:
    instants = Instants()
    for _ in range(SWEEP_SLACK + 3):
        instants.set(10, 1)
    instants.timers.sweep(1)
    assert len(instants.timers) == 1
