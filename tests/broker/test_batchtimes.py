"""How long a batch gathers and how long it is held up, over a real committer and stepped work."""

import pytest
from support.full_journal import FullJournal
from support.journals import BOOT_ID, BOOT_MS, WALL_MS, an_image
from support.stepped_runner import SteppedRunner

from stoker.broker.batchtimes import HELD_MS, PATIENCE_MS, BatchTimes
from stoker.broker.committer import Committer
from stoker.broker.core.effects import Answer, Changes
from stoker.broker.payloads import PayloadCache
from stoker.proto.messages import Done

LONG_MS = 1000


class Bench:
    """A committer whose every batch has a change, and its times."""

    def __init__(self) -> None:
        self.journal = FullJournal()
        self.journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)
        self.runner = SteppedRunner(self.journal)
        self.now_ms = 100
        self.held_ms: list[int] = []
        self.committer = Committer(
            self.runner,
            lambda: Changes(images=[an_image(1)], payloads=[(1, b"")]),
            lambda effects, payloads: None,
            self,
            make_room=lambda journal: None,
            cache=PayloadCache(1000),
        )
        self.times = BatchTimes(self.committer)

    def commit_begun(self) -> None:
        self.times.begun(self.now_ms)

    def commit_full(self) -> None:
        self.times.found_full()

    def commit_stored(self) -> None:
        self.held_ms.append(self.times.stored(self.now_ms))

    def commit_failed(self, error: BaseException) -> None:
        raise error

    def add(self, *, patient: bool) -> None:
        self.committer.add([Answer(1, 1, Done(), patient=patient)])


def test_patience_begins_with_the_first_ack_and_has_an_end() -> None:
    bench = Bench()
    bench.add(patient=True)
    assert bench.times.may_wait(100)
    assert bench.times.delay_ms(100, LONG_MS) == PATIENCE_MS
    bench.add(patient=True)
    assert bench.times.may_wait(100 + PATIENCE_MS - 1)
    assert bench.times.delay_ms(100 + PATIENCE_MS - 1, LONG_MS) == 1
    assert not bench.times.may_wait(100 + PATIENCE_MS)
    assert bench.times.delay_ms(100 + PATIENCE_MS, LONG_MS) == LONG_MS


def test_patience_ends_when_somebody_waits() -> None:
    bench = Bench()
    bench.add(patient=True)
    assert bench.times.may_wait(100)
    bench.add(patient=False)
    assert not bench.times.may_wait(101)


def test_patience_never_puts_off_what_is_due_earlier() -> None:
    bench = Bench()
    bench.add(patient=True)
    assert bench.times.may_wait(100)
    assert bench.times.delay_ms(100, 2) == 2


@pytest.fixture
def begun() -> Bench:
    """A batch is in flight, since 100 ms."""
    bench = Bench()
    bench.add(patient=False)
    bench.committer.flush()
    return bench


def test_batch_is_held_up_when_it_has_been_in_flight_for_long(begun: Bench) -> None:
    assert not begun.times.look(100 + HELD_MS - 1)
    assert begun.times.look(100 + HELD_MS)
    begun.now_ms += 3 * HELD_MS
    begun.runner.do_next()
    assert begun.held_ms == [3 * HELD_MS]
    assert not begun.times.is_held


@pytest.mark.parametrize(("took_ms", "held_ms"), [(HELD_MS - 1, 0), (HELD_MS, HELD_MS)])
def test_batch_that_nobody_looked_at_is_found_to_have_been_held_up_all_the_same(
    begun: Bench, took_ms: int, held_ms: int
) -> None:
    begun.now_ms += took_ms
    begun.runner.do_next()
    assert begun.held_ms == [held_ms]


def test_batch_after_a_short_one_has_its_own_time(begun: Bench) -> None:
    begun.runner.do_next()
    begun.now_ms += 2 * HELD_MS
    begun.add(patient=False)
    begun.committer.flush()
    begun.runner.do_next()
    assert begun.held_ms == [0, 0]


def test_batch_that_gathered_behind_another_has_its_own_time(begun: Bench) -> None:
    begun.add(patient=False)
    begun.now_ms += 2 * HELD_MS
    begun.runner.do_next()
    begun.now_ms += HELD_MS
    begun.runner.do_next()
    assert begun.held_ms == [2 * HELD_MS, HELD_MS]


def test_batch_that_does_not_fit_is_held_up_however_short_that_is(begun: Bench) -> None:
    begun.journal.is_full = True
    begun.now_ms += 1
    begun.runner.do_next()
    assert begun.times.look(101) and begun.times.is_full
    begun.now_ms += 2
    begun.journal.is_full = False
    begun.committer.retry()
    begun.runner.do_next()
    assert begun.held_ms == [3]
    assert not (begun.times.is_full or begun.times.look(200))
