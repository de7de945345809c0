"""Group commit: what is released when, what shares a commit, and what a storage error holds back."""

from collections.abc import Mapping, Sequence

import pytest
from support.full_journal import FullJournal
from support.journals import BOOT_ID, BOOT_MS, WALL_MS, an_image
from support.stepped_runner import SteppedRunner

from stoker.broker.committer import SMALL_BYTES, SMALL_ROWS, Committer
from stoker.broker.core.effects import Answer, Changes, Effect, Push
from stoker.broker.journal import Journal, JournalBrokenError, JournalFullError
from stoker.broker.memory import MemoryJournal
from stoker.broker.payloads import PayloadCache
from stoker.proto import work
from stoker.proto.messages import Done


def answer(request: int) -> Answer:
    return Answer(1, request, Done())


def a_push(number: int) -> Push:
    return Push(1, work.Job([1, number], f"job-{number}", number, "send", "mail", 1, b"", 1, 100, 0))


class Bench:
    """A committer over a memory journal, its core replaced by a list of changes to come."""

    def __init__(self, cache_bytes: int = 1000, journal: MemoryJournal | None = None) -> None:
        self.journal = journal or MemoryJournal()
        self.journal.load(boot_id=BOOT_ID, boot_ms=BOOT_MS, wall_ms=WALL_MS)
        self.runner = SteppedRunner(self.journal)
        self.pending = Changes()
        self.released: list[int] = []
        self.payloads: dict[int, bytes] = {}
        self.reports: list[str] = []
        self.held_back: list[int] = []
        """Jobs whose pushes were held back when a batch was last reported to be stored."""
        self.rooms_made = 0
        self.committer = Committer(
            self.runner,
            self._take_changes,
            self._release,
            self,
            make_room=self._make_room,
            cache=PayloadCache(cache_bytes),
        )

    def _take_changes(self) -> Changes:
        changes, self.pending = self.pending, Changes()
        return changes

    def _release(self, effects: Sequence[Effect], payloads: Mapping[int, bytes]) -> None:
        self.released += [effect.request for effect in effects if isinstance(effect, Answer)]
        self.payloads.update(payloads)

    def _make_room(self, _: Journal) -> None:
        self.rooms_made += 1

    def commit_begun(self) -> None:
        self.reports.append("begun")

    def commit_full(self) -> None:
        self.reports.append("full")

    def commit_stored(self) -> None:
        self.reports.append("stored")
        self.held_back = [
            message.number for message in self.committer.pushes_held() if isinstance(message, work.Job)
        ]

    def commit_failed(self, error: BaseException) -> None:
        self.reports.append(type(error).__name__)

    def decide(self, request: int, *, number: int = 0, payload: bytes = b"abc") -> None:
        """One step of the core: an answer, and a new job if `number` is given."""
        if number:
            self.pending = Changes(
                images=[*self.pending.images, an_image(number)],
                payloads=[*self.pending.payloads, (number, payload)],
            )
        self.committer.add([answer(request)])

    def is_stored(self, number: int) -> bool:
        return self.journal.find(f"job-{number}").job is not None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_answer_waits_for_the_commit_of_its_batch(bench: Bench) -> None:
    bench.decide(1, number=1)
    bench.committer.flush()
    assert (bench.released, bench.is_stored(1)) == ([], False)
    bench.runner.do_next()
    assert (bench.released, bench.is_stored(1)) == ([1], True)


def test_pushes_are_held_back_by_a_batch_in_flight_and_by_the_one_that_gathers_behind_it(
    bench: Bench,
) -> None:
    bench.decide(1, number=7)
    bench.committer.add([a_push(7)])
    assert bench.committer.pushes_held() == [a_push(7).message]
    bench.committer.flush()
    bench.decide(2, number=8)
    bench.committer.add([a_push(8)])
    bench.runner.do_next()
    assert bench.held_back == [7, 8]
    assert bench.committer.pushes_held() == [a_push(8).message]
    bench.runner.do_next()
    assert (bench.held_back, bench.committer.pushes_held()) == ([8], [])


def test_order_to_kill_is_held_back_as_a_job_is(bench: Bench) -> None:
    kill = Push(2, work.Kill("nonce-w1", [1, 1], "timeout", 500))
    bench.decide(1, number=7)
    bench.committer.add([kill])
    bench.committer.flush()
    assert bench.committer.pushes_held() == [kill.message]


def test_steps_before_a_flush_share_one_commit(bench: Bench) -> None:
    bench.decide(1, number=1)
    bench.decide(2, number=2)
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.released == [1, 2]
    assert bench.journal.statistics()["commits"] == 1


def test_batch_of_answers_that_hold_nobody_up_is_patient_until_another_effect_joins(bench: Bench) -> None:
    assert not bench.committer.is_patient
    bench.committer.add([Answer(1, 1, Done(), patient=True)])
    assert bench.committer.is_patient
    bench.decide(2)
    assert not bench.committer.is_patient
    bench.committer.flush()
    assert bench.released == [1, 2]
    bench.committer.add([Answer(1, 3, Done(), patient=True)])
    assert bench.committer.is_patient


def test_batch_is_not_patient_for_a_step_without_effects_or_a_look_up(bench: Bench) -> None:
    bench.committer.add([])
    assert not bench.committer.is_patient
    bench.committer.flush()
    bench.committer.add([Answer(1, 1, Done(), patient=True)])
    bench.committer.look(lambda journal: journal.find("job-1"), lambda _: None)
    assert not bench.committer.is_patient


def test_batch_without_changes_is_released_at_once_when_nothing_is_in_flight(bench: Bench) -> None:
    bench.decide(1)
    bench.committer.flush()
    assert bench.released == [1]


def test_batch_without_changes_waits_for_the_batch_in_flight(bench: Bench) -> None:
    bench.decide(1, number=1)
    bench.committer.flush()
    bench.decide(2)
    bench.committer.flush()
    assert bench.released == []
    bench.runner.do_next()
    assert bench.released == [1, 2]


def test_next_batch_gathers_while_one_is_in_flight(bench: Bench) -> None:
    bench.decide(1, number=1)
    bench.committer.flush()
    for request in (2, 3):
        bench.decide(request, number=request)
        bench.committer.flush()
    bench.runner.do_next()
    assert bench.released == [1]
    bench.runner.do_next()
    assert bench.released == [1, 2, 3]
    assert bench.journal.statistics()["commits"] == 2


def test_change_without_any_effect_is_committed(bench: Bench) -> None:
    bench.pending = Changes(images=[an_image(1)])
    bench.committer.add([])
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.is_stored(1)


def test_look_up_sees_what_was_decided_before_it(bench: Bench) -> None:
    found: list[bool] = []
    bench.decide(1, number=1)
    bench.committer.look(lambda journal: journal.find("job-1").job is not None, found.append)
    bench.committer.flush()
    bench.runner.do_next()
    assert found == [True]


def test_look_up_is_answered_after_what_was_released_before_it(bench: Bench) -> None:
    bench.decide(1, number=1)
    bench.committer.look(lambda _: 99, bench.released.append)
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.released == [1, 99]


def test_payload_of_a_push_comes_from_the_cache(bench: Bench) -> None:
    bench.decide(1, number=1, payload=b"here")
    bench.committer.add([a_push(1)])
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.payloads == {1: b"here"}


def test_payload_not_in_the_cache_is_read_in_the_same_visit() -> None:
    bench = Bench(cache_bytes=0)
    bench.decide(1, number=1, payload=b"disk")
    bench.committer.add([a_push(1)])
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.payloads == {1: b"disk"}


def test_full_disk_makes_room_and_stores_the_same_batch(bench: Bench) -> None:
    bench.journal.fail_commit(1, JournalFullError)
    bench.decide(1, number=1)
    bench.committer.flush()
    bench.runner.do_next()
    assert (bench.rooms_made, bench.released, bench.reports) == (1, [1], ["begun", "stored"])


def a_delete(number: int) -> tuple[int, str, bytes, int]:
    return (number, f"job-{number}", b"h" * 16, 0)


@pytest.mark.parametrize(
    ("changes", "is_small"),
    [
        (Changes(payloads=[(1, b"x" * SMALL_BYTES)]), True),
        (Changes(payloads=[(1, b"x" * SMALL_BYTES), (2, b"x")]), False),
        (Changes(deleted=[a_delete(number) for number in range(SMALL_ROWS)]), True),
        (Changes(deleted=[a_delete(number) for number in range(SMALL_ROWS + 1)]), False),
    ],
    ids=["few bytes", "many bytes", "few rows", "many rows"],
)
def test_batch_says_whether_it_is_small(bench: Bench, changes: Changes, *, is_small: bool) -> None:
    bench.pending = changes
    bench.committer.add([])
    bench.committer.flush()
    assert bench.runner.small == [is_small]


def test_batch_that_reads_is_never_small(bench: Bench) -> None:
    bench.committer.look(lambda _: 1, bench.released.append)
    bench.committer.flush()
    assert bench.runner.small == [False]


@pytest.fixture
def full_disk() -> FullJournal:
    journal = FullJournal()
    journal.is_full = True
    return journal


@pytest.fixture
def full(full_disk: FullJournal) -> Bench:
    """One batch was handed over and did not fit."""
    bench = Bench(journal=full_disk)
    bench.decide(1, number=1)
    bench.committer.flush()
    bench.runner.do_next()
    return bench


def test_batch_that_never_fits_answers_nothing_and_holds_up_the_next(full: Bench) -> None:
    full.decide(2, number=2)
    full.committer.flush()
    full.committer.retry()
    full.runner.do_all()
    assert (full.released, full.committer.is_stuck) == ([], True)
    assert full.reports == ["begun", "full", "begun", "full"]


def test_kept_batch_is_stored_once_there_is_room(full: Bench, full_disk: FullJournal) -> None:
    full.decide(2, number=2)
    full_disk.is_full = False
    full.committer.retry()
    full.runner.do_all()
    assert full.released == [1, 2]
    assert full.reports == ["begun", "full", "begun", "stored", "begun", "stored"]
    assert full.is_stored(1) and full.is_stored(2)


def test_look_up_for_a_person_does_not_wait_for_a_batch_that_does_not_fit(full: Bench) -> None:
    full.committer.look(lambda _: 99, full.released.append, may_pass=True)
    full.runner.do_next()
    assert full.released == [99]


def test_look_up_for_the_core_never_passes_a_batch_that_does_not_fit(
    full: Bench, full_disk: FullJournal
) -> None:
    full.committer.look(lambda journal: journal.find("job-1").job is not None, full.released.append)
    assert full.released == []
    full_disk.is_full = False
    full.committer.retry()
    full.runner.do_all()
    assert full.released == [1, True]


@pytest.mark.parametrize("stored", [False, True])
def test_broken_storage_releases_nothing_ever_again(bench: Bench, *, stored: bool) -> None:
    bench.journal.fail_commit(1, JournalBrokenError, stored=stored)
    bench.decide(1, number=1)
    bench.committer.flush()
    bench.runner.do_next()
    bench.decide(2)
    bench.committer.flush()
    bench.runner.do_all()
    assert (bench.released, bench.reports) == ([], ["begun", "JournalBrokenError"])


@pytest.mark.parametrize("error", [None, JournalBrokenError])
def test_rows_that_go_are_told_when_that_is_stored_and_only_then(
    bench: Bench, error: type[JournalBrokenError] | None
) -> None:
    told: list[Sequence[int]] = []
    bench.committer.deleted = told.append
    if error is not None:
        bench.journal.fail_commit(1, error)
    bench.pending = Changes(deleted=[(4, "job-4", b"", 0), (7, "job-7", b"", 0)])
    bench.committer.add([answer(1)])
    bench.committer.flush()
    assert told == []
    bench.runner.do_all()
    assert told == ([[4, 7]] if error is None else [])


def test_look_up_that_breaks_ends_the_broker_too(bench: Bench) -> None:
    def look(_: Journal) -> int:
        raise JournalBrokenError("damaged row")

    bench.committer.look(look, bench.released.append)
    bench.committer.flush()
    bench.runner.do_next()
    assert bench.reports == ["begun", "JournalBrokenError"]


def test_committer_is_idle_only_when_nothing_is_held_back(bench: Bench) -> None:
    seen = [bench.committer.is_idle]
    bench.decide(1, number=1)
    seen.append(bench.committer.is_idle)
    bench.committer.flush()
    seen.append(bench.committer.is_idle)
    bench.runner.do_next()
    seen.append(bench.committer.is_idle)
    assert seen == [True, False, False, True]
