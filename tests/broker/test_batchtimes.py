"""How long a batch gathers and how long it is held up, over a real committer and stepped work."""

from support.journals import BOOT_ID, BOOT_MS, WALL_MS, an_image
from support.stepped_runner import SteppedRunner

from stoker.broker.batchtimes import HELD_MS, PATIENCE_MS, BatchTimes
from stoker.broker.committer import Committer
from stoker.broker.core.effects import Answer, Changes
from stoker.broker.memory import MemoryJournal
from stoker.broker.payloads import PayloadCache
from stoker.proto.messages import Done

LONG_MS = 1000


class Bench:
    """A committer whose every batch has a change, and its times."""

    def __init__(self) -> None:
        journal = MemoryJournal()
        journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)
        self.runner = SteppedRunner(journal)
        self.stored_after_all = 0
        self.committer = Committer(
            self.runner,
            lambda: Changes(images=[an_image(1)], payloads=[(1, b"")]),
            lambda effects, payloads: None,
            self,
            make_room=lambda journal: None,
            cache=PayloadCache(1000),
        )
        self.times = BatchTimes(self.committer)

    def commit_full(self) -> None:
        raise AssertionError("there is room")

    def commit_stored(self) -> None:
        self.stored_after_all += 1

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


def test_batch_is_held_up_when_it_has_been_in_flight_for_long() -> None:
    bench = Bench()
    bench.add(patient=False)
    bench.committer.flush()
    bench.times.watch(100)
    assert not bench.times.look(100 + HELD_MS - 1)
    assert bench.times.look(100 + HELD_MS)
    bench.runner.do_next()
    assert bench.stored_after_all == 1
    assert bench.times.stored(100 + 3 * HELD_MS) == 3 * HELD_MS
    assert not bench.times.is_held


def test_batch_that_does_not_fit_is_held_up_from_then_on() -> None:
    bench = Bench()
    bench.times.found_full(100)
    bench.times.found_full(150)
    assert bench.times.is_held
    assert bench.times.stored(180) == 80
