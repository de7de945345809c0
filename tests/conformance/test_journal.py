"""One suite for every journal: what is committed is there after any end, and nothing else is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.journals import (
    BENCHES,
    BOOT_MS,
    KEEP_ALL,
    WALL_MS,
    Bench,
    a_finished_image,
    a_job,
    an_image,
    an_outcome,
    stored,
)

from stoker.broker.core.effects import Changes
from stoker.broker.core.events import Found
from stoker.broker.core.job import image
from stoker.broker.journal import JournalBrokenError, ended, exhaust
from stoker.proto import limits
from stoker.proto.model import State

DAY_MS = limits.DAY_MS


@pytest.fixture(params=sorted(BENCHES))
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """A bench whose journal has not been loaded."""
    bench = BENCHES[request.param](tmp_path)
    yield bench
    bench.journal.close()


@pytest.fixture
def bench(fresh: Bench) -> Bench:
    """A bench whose journal is loaded, in epoch 1."""
    fresh.load()
    return fresh


# --- starting -----------------------------------------------------------------------------------------


def test_new_journal_is_empty_and_in_epoch_1(fresh: Bench) -> None:
    recovered = fresh.load()
    assert (recovered.epoch, recovered.sequence, recovered.ids_kept) == (1, 0, 0)
    assert not (recovered.jobs or recovered.finished_counts or recovered.kinds or recovered.paused)


@pytest.mark.parametrize("end", ["reopen", "crash"])
def test_epoch_grows_with_each_start(bench: Bench, end: str) -> None:
    assert [getattr(bench, end)().epoch for _ in range(3)] == [2, 3, 4]


@pytest.mark.parametrize("end", ["reopen", "crash"])
def test_live_jobs_come_back_as_they_were_written(bench: Bench, end: str) -> None:
    images = [
        an_image(3, state=State.LEASED, worker="w", ticket=b"t" * 16, token_epoch=1, token_counter=7),
        an_image(1, state=State.SCHEDULED, due_boot_ms=5, delay_ms=5, headers={"trace": "ä\u2028b"}),
        an_image(2, id_by_caller=False, resolved=False, cancelling=True, attempts_max=9, reason="x" * 2048),
    ]
    bench.journal.commit(stored(*images))
    recovered = getattr(bench, end)()
    assert [image(job) for job in recovered.jobs] == sorted(images)
    assert [type(job.state) for job in recovered.jobs] == [State] * 3


def test_flags_come_back_as_flags(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1, id_by_caller=True, cancelling=False)))
    (job,) = bench.reopen().jobs
    assert (job.id_by_caller, job.cancelling) == (True, False)
    assert type(job.id_by_caller) is bool


def test_finished_jobs_are_counted_and_not_loaded(bench: Bench) -> None:
    states = (State.DONE, State.DONE, State.DEAD, State.CANCELLED)
    bench.journal.commit(stored(*(an_image(n, state=state) for n, state in enumerate(states, 1))))
    recovered = bench.reopen()
    assert recovered.jobs == []
    assert recovered.finished_counts == {("mail", "done"): 2, ("mail", "dead"): 1, ("mail", "cancelled"): 1}


def test_forgotten_kind_does_not_come_back(bench: Bench) -> None:
    bench.journal.commit(Changes(kinds=[("send", "pool", {}), ("drop", "pool", {})]))
    bench.journal.commit(Changes(kinds=[("more", "pool", {})], kinds_forgotten=["drop", "unknown"]))
    assert set(bench.crash().kinds) == {"send", "more"}


def test_sequence_kinds_and_pauses_come_back(bench: Bench) -> None:
    bench.journal.commit(
        Changes(
            kinds=[("send", "pool", {"lease_ms": 5}), ("drop", "pool", {})],
            paused=[("mail", True), ("", True), ("other", True)],
            sequence=41,
        )
    )
    bench.journal.commit(Changes(kinds=[("drop", "pool-2", {})], paused=[("other", False)], sequence=42))
    recovered = bench.crash()
    assert recovered.kinds == {"send": ("pool", {"lease_ms": 5}), "drop": ("pool-2", {})}
    assert recovered.paused == {"mail", ""}
    assert recovered.sequence == 42


def test_starts_of_live_jobs_are_told(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.reopen(boot_id="boot-2", boot_ms=5, wall_ms=WALL_MS + 9)
    bench.journal.commit(stored(an_image(2, epoch=2)))
    bench.reopen(boot_id="boot-3", boot_ms=6, wall_ms=WALL_MS + 10)
    recovered = bench.reopen(boot_id="boot-3", boot_ms=7, wall_ms=WALL_MS + 11)
    assert set(recovered.starts) == {1, 2, 4}
    assert recovered.starts[2].boot_id == "boot-2"
    assert (recovered.starts[4].boot_ms, recovered.starts[4].wall_ms) == (7, WALL_MS + 11)


def test_attempts_that_ended_last_are_told_in_order(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2)))
    bench.journal.commit(Changes(outcomes=[an_outcome(2, 1, "error"), an_outcome(1, 2, "released")]))
    bench.journal.commit(Changes(outcomes=[an_outcome(2, 3, "ok", worker="other")]))
    assert list(bench.reopen().ended) == [
        ("boot/1/2/3/nonce", (1, 1), "nack"),
        ("boot/1/2/3/nonce", (1, 2), "release"),
        ("other", (1, 3), "ack"),
    ]


# --- committing and finding ---------------------------------------------------------------------------


def test_last_image_of_a_job_counts(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    after = an_image(1, state=State.LEASED, attempt=1, queue="other")
    bench.journal.commit(Changes(images=[after]))
    job = bench.journal.find("job-1").job
    assert job is not None
    assert image(job) == after


def test_unknown_id_is_found_to_be_nothing(bench: Bench) -> None:
    assert bench.journal.find("job-1", history=True, payload=True) == Found()


def test_payload_is_found_when_asked(bench: Bench) -> None:
    bench.journal.commit(Changes(images=[an_image(1)], payloads=[(1, b"\x00\xff")]))
    assert bench.journal.find("job-1").payload is None
    assert bench.journal.find("job-1", payload=True).payload == b"\x00\xff"
    assert bench.journal.payload(1) == b"\x00\xff"


def test_missing_payload_is_a_key_error_and_breaks_nothing(bench: Bench) -> None:
    with pytest.raises(KeyError):
        bench.journal.payload(1)
    bench.journal.commit(stored(an_image(1)))
    assert bench.journal.payload(1) == b"payload 1"


def test_empty_payload_is_a_payload(bench: Bench) -> None:
    bench.journal.commit(Changes(images=[an_image(1)], payloads=[(1, b"")]))
    assert bench.journal.find("job-1", payload=True).payload == b""


def test_history_comes_oldest_first_with_the_result_of_the_last_ok(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2)))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 1), an_outcome(2, 1, "ok", result=b"no")]))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 2, "ok", result=b"yes")]))
    found = bench.journal.find("job-1", history=True)
    assert [(row["attempt"], row["outcome"]) for row in found.history] == [(1, "error"), (2, "ok")]
    assert found.result == b"yes"


@pytest.mark.parametrize("output", [None, "", "said é\n" * 1000])
def test_output_of_an_attempt_comes_back_as_it_was(bench: Bench, output: str | None) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 1, output=output)]))
    bench.crash()
    assert [row["output"] for row in bench.journal.find("job-1", history=True).history] == [output]


def test_history_and_result_are_not_read_unasked(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 1, "ok", result=b"yes")]))
    found = bench.journal.find("job-1")
    assert (list(found.history), found.result) == ([], None)


def test_history_keeps_the_last_outcomes(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    for attempt in range(1, limits.OUTCOMES_KEPT + 6):
        bench.journal.commit(Changes(outcomes=[an_outcome(1, attempt)]))
    history = bench.journal.find("job-1", history=True).history
    assert [row["attempt"] for row in history] == list(range(6, limits.OUTCOMES_KEPT + 6))
    assert len(bench.reopen().ended) == limits.OUTCOMES_KEPT


def test_deleted_job_takes_payload_and_outcomes_with_it(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 1)]))
    bench.journal.commit(Changes(deleted=[(1, "job-1", b"h" * 16, 0)]))
    assert bench.journal.find("job-1") == Found()
    with pytest.raises(KeyError):
        bench.journal.payload(1)
    assert bench.reopen().ended in ((), [])


def test_job_made_and_deleted_in_one_batch_is_gone(bench: Bench) -> None:
    changes = stored(an_image(1), an_image(2))
    changes.outcomes = [an_outcome(1, 1)]
    changes.deleted = [(1, "job-1", b"h" * 16, 0)]
    bench.journal.commit(changes)
    recovered = bench.reopen()
    assert [job.number for job in recovered.jobs] == [2]
    assert list(recovered.ended) == []


def test_id_of_a_deleted_job_may_be_taken_in_the_same_batch(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    changes = stored(an_image(2, id="job-1"))
    changes.deleted = [(1, "job-1", b"h" * 16, 0)]
    bench.journal.commit(changes)
    job = bench.journal.find("job-1").job
    assert job is not None
    assert job.number == 2


# --- remembered ids -----------------------------------------------------------------------------------


def forget(bench: Bench, boot_ms: int, limit: int = 100) -> int:
    return bench.journal.forget_ids(boot_ms=boot_ms, limit=limit)


def remember(bench: Bench, number: int, until_boot_ms: int) -> None:
    """Make a job, and delete it so that its id is kept."""
    bench.journal.commit(stored(an_image(number)))
    bench.journal.commit(Changes(deleted=[(number, f"job-{number}", b"h" * 16, until_boot_ms)]))


def test_id_is_remembered_beyond_its_row(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    remembered = bench.journal.find("job-1").remembered
    assert remembered is not None
    assert (remembered.id, remembered.number, remembered.body_hash) == ("job-1", 1, b"h" * 16)
    assert bench.journal.statistics()["ids_kept"] == 1
    assert bench.crash().ids_kept == 1
    assert bench.journal.statistics()["ids_kept"] == 1


def test_id_is_forgotten_at_its_time_and_not_before(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    assert forget(bench, BOOT_MS + 99) == 0
    assert forget(bench, BOOT_MS + 100) == 1
    assert bench.journal.find("job-1") == Found()
    assert bench.journal.statistics()["ids_kept"] == 0


def test_no_more_ids_are_forgotten_than_the_limit_says(bench: Bench) -> None:
    for number in range(1, 6):
        remember(bench, number, BOOT_MS + number)
    assert forget(bench, BOOT_MS + 100, limit=2) == 2
    assert bench.journal.find("job-3").remembered is not None
    assert forget(bench, BOOT_MS + 100, limit=9) == 3


def test_row_goes_before_the_memory_of_its_id(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    bench.journal.commit(stored(an_image(2, id="job-1")))
    found = bench.journal.find("job-1")
    assert found.job is not None
    assert found.remembered is None


def test_remembering_an_id_again_counts_it_once(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    bench.journal.commit(stored(an_image(2, id="job-1")))
    bench.journal.commit(Changes(deleted=[(2, "job-1", b"i" * 16, BOOT_MS + 200)]))
    assert bench.journal.statistics()["ids_kept"] == 1
    assert forget(bench, BOOT_MS + 150) == 0


def test_deletion_without_memory_forgets_the_id_at_once(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    bench.journal.commit(stored(an_image(2, id="job-1")))
    bench.journal.commit(Changes(deleted=[(2, "job-1", b"i" * 16, 0)]))
    assert bench.journal.find("job-1") == Found()
    assert bench.reopen().ids_kept == 0


def test_memory_of_an_id_goes_on_where_it_was_after_a_reboot(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 10 * limits.MINUTE_MS)
    forget(bench, BOOT_MS + 4 * limits.MINUTE_MS)
    bench.reopen(boot_id="boot-2", boot_ms=77, wall_ms=WALL_MS + 1000 * DAY_MS)
    assert forget(bench, 77 + 6 * limits.MINUTE_MS - 1) == 0
    assert forget(bench, 77 + 6 * limits.MINUTE_MS) == 1


def test_id_is_forgotten_at_its_time_however_many_starts_later(bench: Bench) -> None:
    remember(bench, 1, BOOT_MS + 100)
    for _ in range(3):
        bench.reopen()
    assert forget(bench, BOOT_MS + 99) == 0
    assert forget(bench, BOOT_MS + 100) == 1


# --- listing ------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(bench: Bench) -> Bench:
    """Six jobs of two queues, kinds and states."""
    fields: list[dict[str, Any]] = [
        {},
        {"queue": "other"},
        {"kind": "drop"},
        {"state": State.DEAD},
        {"state": State.DEAD, "queue": "other"},
        {"queue": "other", "kind": "drop"},
    ]
    bench.journal.commit(stored(*(an_image(n, **each) for n, each in enumerate(fields, 1))))
    return bench


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"queue": "other"}, [2, 5, 6]),
        ({"state": "dead"}, [4, 5]),
        ({"kind": "drop"}, [3, 6]),
        ({"queue": "other", "state": "ready", "kind": "drop"}, [6]),
        ({"after": 3}, [4, 5, 6]),
        ({"limit": 2}, [1, 2]),
        ({"after": 2, "limit": 1, "state": "dead"}, [4]),
        ({"queue": "none"}, []),
    ],
)
def test_jobs_are_listed_by_number(mixed: Bench, filters: dict[str, Any], numbers: list[int]) -> None:
    asked: dict[str, Any] = {"queue": None, "state": None, "kind": None, "after": 0, "limit": 100}
    assert [job.number for job in mixed.journal.list_jobs(**{**asked, **filters})] == numbers


def test_dead_ids_come_in_the_order_of_dying(bench: Bench) -> None:
    for number, finished in ((1, 30), (2, 10), (3, 20), (4, 10)):
        bench.journal.commit(stored(a_finished_image(number, State.DEAD, finished)))
    bench.journal.commit(stored(a_finished_image(5, State.DEAD, 5, queue="other")))
    bench.journal.commit(stored(a_finished_image(6, State.DONE, 5)))
    assert list(bench.journal.dead_ids("mail", 9)) == ["job-2", "job-4", "job-3", "job-1"]
    assert list(bench.journal.dead_ids("mail", 1)) == ["job-2"]


# --- retention ----------------------------------------------------------------------------------------


def prunable(bench: Bench, boot_ms: int, limit: int = 100, **kept: int) -> list[int]:
    rows = bench.journal.prunable(attrs.evolve(KEEP_ALL, **kept), boot_ms=boot_ms, limit=limit)
    return [row[0] for row in rows]


@pytest.fixture
def finished(bench: Bench) -> Bench:
    """Done 1 and cancelled 2, dead 3 and 4, finished in that order, and one that lives."""
    states = (State.DONE, State.CANCELLED, State.DEAD, State.DEAD)
    images = [a_finished_image(n, state, BOOT_MS + n) for n, state in enumerate(states, 1)]
    bench.journal.commit(stored(*images, an_image(5)))
    return bench


def test_rows_are_prunable_at_their_time_and_not_before(finished: Bench) -> None:
    assert prunable(finished, BOOT_MS + 100, done_kept_ms=99) == [1]
    assert prunable(finished, BOOT_MS + 100, done_kept_ms=98) == [1, 2]
    assert prunable(finished, BOOT_MS + 100, dead_kept_ms=97) == [3]
    assert prunable(finished, BOOT_MS + 100) == []


def test_rows_over_the_number_kept_are_prunable_the_oldest_first(finished: Bench) -> None:
    assert prunable(finished, BOOT_MS, done_kept_max=1) == [1]
    assert prunable(finished, BOOT_MS, dead_kept_max=0) == [3, 4]


def test_prunable_keeps_to_its_limit_over_both_groups(finished: Bench) -> None:
    assert prunable(finished, BOOT_MS, limit=3, done_kept_max=0, dead_kept_max=0) == [1, 2, 3]
    assert prunable(finished, BOOT_MS, limit=1, done_kept_max=0, dead_kept_max=0) == [1]


def test_prunable_rows_say_what_the_core_needs(finished: Bench) -> None:
    (row,) = finished.journal.prunable(KEEP_ALL, boot_ms=BOOT_MS + 10**9 + 1, limit=1)
    job = a_job(1)
    assert row == (1, "job-1", job.body_hash, True, "mail", "done", BOOT_MS)
    assert type(row[3]) is bool


def test_reboot_neither_ages_finished_rows_nor_makes_them_young(finished: Bench) -> None:
    forget(finished, BOOT_MS + DAY_MS)
    finished.reopen(boot_id="boot-2", boot_ms=50, wall_ms=WALL_MS + 1000 * DAY_MS)
    assert prunable(finished, 50, done_kept_ms=DAY_MS) == []
    assert prunable(finished, 51, done_kept_ms=DAY_MS) == [1]
    assert prunable(finished, 52, done_kept_ms=DAY_MS) == [1, 2]


def test_created_instant_of_a_prunable_row_is_on_the_clock_of_this_start(finished: Bench) -> None:
    forget(finished, BOOT_MS + DAY_MS)
    finished.reopen(boot_id="boot-2", boot_ms=50, wall_ms=WALL_MS)
    (row,) = finished.journal.prunable(KEEP_ALL, boot_ms=10**10, limit=1)
    assert row[-1] == 50 - DAY_MS


def test_restart_within_a_boot_changes_no_age(finished: Bench) -> None:
    finished.reopen(boot_ms=BOOT_MS + 50)
    assert prunable(finished, BOOT_MS + 100, done_kept_ms=98) == [1, 2]
    assert prunable(finished, BOOT_MS + 100, done_kept_ms=99) == [1]


def test_rows_keep_their_age_however_many_starts_later(finished: Bench) -> None:
    for _ in range(3):
        finished.reopen()
    assert prunable(finished, BOOT_MS + 100, done_kept_ms=99, dead_kept_ms=97) == [1, 3]


def test_dead_rows_alone_keep_their_age_too(bench: Bench) -> None:
    bench.journal.commit(stored(a_finished_image(1, State.DEAD, BOOT_MS + 1)))
    for _ in range(3):
        bench.reopen()
    assert prunable(bench, BOOT_MS + 100, dead_kept_ms=99) == [1]


def test_finishing_order_holds_across_reboots(finished: Bench) -> None:
    finished.reopen(boot_id="boot-2", boot_ms=50)
    finished.journal.commit(stored(a_finished_image(6, State.DEAD, 60, epoch=2)))
    assert list(finished.journal.dead_ids("mail", 9)) == ["job-3", "job-4", "job-6"]
    assert prunable(finished, 70, dead_kept_max=1) == [3, 4]


# --- the rest -----------------------------------------------------------------------------------------


def test_snapshot_is_private_and_tells_its_size(bench: Bench, tmp_path: Path) -> None:
    bench.journal.commit(stored(an_image(1)))
    path = tmp_path / "copy.db"
    assert bench.journal.snapshot(str(path)) == path.stat().st_size > 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_snapshot_never_overwrites(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        bench.journal.snapshot(str(path))
    assert path.read_text() == "precious"


def test_snapshot_does_not_overwrite_what_was_made_meanwhile(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    steps = bench.journal.snapshot_steps(str(path))
    next(steps)
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        exhaust(steps)
    assert [each.name for each in tmp_path.glob("copy*")] == ["copy.db"]
    assert path.read_text() == "precious"


def test_snapshot_that_cannot_be_written_leaves_the_journal_working(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        bench.journal.snapshot(str(tmp_path / "nowhere" / "copy.db"))
    bench.journal.commit(stored(an_image(1)))


def test_statistics_count_commits(bench: Bench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(sequence=5))
    statistics = bench.journal.statistics()
    assert statistics["commits"] == 2
    assert set(statistics) == {"journal_bytes", "wal_bytes", "commits", "ids_kept"}


def test_closed_journal_refuses_work_but_not_a_second_close(bench: Bench) -> None:
    bench.journal.close()
    with pytest.raises(JournalBrokenError):
        bench.journal.commit(Changes(sequence=1))
    bench.journal.close()


@pytest.mark.parametrize(
    ("outcome", "op"),
    [("ok", "ack"), ("crash", ""), ("lost", "")]
    + [(outcome, "release") for outcome in ("released", "shutdown")]
    + [(outcome, "nack") for outcome in ("error", "permanent", "timeout", "cancelled", "memory")],
)
def test_op_that_ended_an_attempt_follows_from_its_outcome(outcome: str, op: str) -> None:
    assert ended("boot/1/2/3/nonce", (1, 2), outcome) == ("boot/1/2/3/nonce", (1, 2), op)
