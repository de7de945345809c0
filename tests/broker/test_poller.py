"""Poller: whoever is ready has its turn, however many there are."""

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from stoker.broker.poller import EVENTS_MAX, FULL_LOOKS_MAX, IN, LOOKS_MAX, Poller


class Desk:
    """A poller of pipes that all have something to read, and how often each was handled."""

    def __init__(self, count: int) -> None:
        self.poller = Poller()
        self.handled: Counter[int] = Counter()
        self._pipes = [os.pipe() for _ in range(count)]
        for reading, writing in self._pipes:
            os.write(writing, b"x")
            self.poller.add(reading, IN, partial(self._handle, reading))
        self.reads = False

    def _handle(self, reading: int, _: int) -> None:
        self.handled[reading] += 1
        if self.reads:
            os.read(reading, 1)

    def close(self) -> None:
        self.poller.close()
        for ends in self._pipes:
            for end in ends:
                os.close(end)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(3 * EVENTS_MAX)
    yield desk
    desk.close()


def test_who_was_handled_comes_after_all_others_that_are_ready(desk: Desk) -> None:
    for _ in range(3):
        assert desk.poller.poll() == EVENTS_MAX
    assert sorted(desk.handled.values()) == [1] * 3 * EVENTS_MAX


def test_gathering_ends_when_there_is_no_room_and_goes_on_with_the_others(desk: Desk) -> None:
    room = iter([True, False])
    desk.poller.gather(lambda: next(room))
    assert desk.handled.total() == EVENTS_MAX
    room = iter([True, True, False])
    desk.poller.gather(lambda: next(room))
    assert desk.handled.total() == 3 * EVENTS_MAX
    assert set(desk.handled.values()) == {1}


def test_gathering_ends_although_there_are_always_more(desk: Desk) -> None:
    desk.poller.gather(lambda: True)
    assert desk.handled.total() == FULL_LOOKS_MAX * EVENTS_MAX


def test_handling_everybody_ends_although_there_are_always_more(desk: Desk) -> None:
    desk.poller.poll_all()
    assert min(desk.handled.values()) >= 2
    assert desk.handled.total() <= 3 * len(desk.handled)


def test_gathering_ends_after_a_few_looks_that_showed_everybody() -> None:
    desk = Desk(2)
    desk.poller.gather(lambda: True)
    assert list(desk.handled.values()) == [LOOKS_MAX] * 2
    desk.close()


def test_everybody_is_handled_until_nothing_is_ready(desk: Desk) -> None:
    desk.reads = True
    desk.poller.poll_all()
    assert sorted(desk.handled.values()) == [1] * 3 * EVENTS_MAX
    assert not desk.poller.look()
