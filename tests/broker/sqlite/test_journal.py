"""What only the journal on SQLite has: checksums, a log to fold in, a file that plain SQL reads."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.journals import BOOT_MS, WALL_MS, SqliteBench, an_image, an_outcome, load, sql, stored

from stoker.broker.core.effects import Changes, OutcomeRow
from stoker.broker.core.job import COLUMNS, image
from stoker.broker.journal import JournalBrokenError
from stoker.broker.refusals import JournalCorruptError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.log import read_log
from stoker.proto.model import State


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[SqliteBench]:
    bench = SqliteBench(tmp_path, wal_bytes_checkpoint=40_000)
    bench.load()
    yield bench
    bench.journal.close()


def damage(bench: SqliteBench, statement: str) -> None:
    """Change the closed file behind the journal's back."""
    bench.journal.close()
    sql(bench.path, statement)


def wal_bytes(bench: SqliteBench) -> int:
    path = Path(f"{bench.path}-wal")
    return path.stat().st_size if path.exists() else 0


# --- checksums ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column", ["attempt", "queue", "worker", "cancelling", "body_hash", "headers", "crc"]
)
def test_damaged_live_row_is_refused_at_the_start(bench: SqliteBench, column: str) -> None:
    bench.journal.commit(stored(an_image(1, headers={"a": "b"})))
    value = "X'ff'" if column == "body_hash" else "1" if column == "cancelling" else "'7'"
    damage(bench, f"UPDATE jobs SET {column} = {value}")
    with pytest.raises(JournalCorruptError, match="job number 1") as caught:
        bench.reopen()
    assert caught.value.exit_word == "DATA_REFUSED"


def test_damaged_finished_row_is_refused_when_read_and_breaks_the_journal(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1, state=State.DONE)))
    damage(bench, "UPDATE jobs SET reason = 'other'")
    bench.reopen()
    with pytest.raises(JournalCorruptError):
        bench.journal.find("job-1")
    with pytest.raises(JournalBrokenError):
        bench.journal.commit(Changes(sequence=1))


def test_damaged_payload_is_refused(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    damage(bench, "UPDATE payloads SET payload = X'00'")
    bench.reopen()
    with pytest.raises(JournalCorruptError, match="payload of job number 1"):
        bench.journal.payload(1)


def test_exchanged_payloads_are_refused(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2)))
    damage(bench, "UPDATE payloads SET number = CASE number WHEN 1 THEN -2 ELSE -1 END")
    damage(bench, "UPDATE payloads SET number = -number")
    bench.reopen()
    with pytest.raises(JournalCorruptError):
        bench.journal.payload(1)


@pytest.mark.parametrize("value", ["'text'", "7"])
def test_payload_of_another_type_is_refused(bench: SqliteBench, value: str) -> None:
    """One flipped bit of a row's header is enough for it."""
    bench.journal.commit(stored(an_image(1)))
    damage(bench, f"UPDATE payloads SET payload = {value}")
    bench.reopen()
    with pytest.raises(JournalCorruptError, match="payload of job number 1"):
        bench.journal.payload(1)


def test_text_that_is_none_is_refused_at_the_start(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    damage(bench, "UPDATE jobs SET queue = CAST(x'ff' AS TEXT)")
    with pytest.raises(JournalCorruptError, match="can't decode"):
        bench.reopen()


def test_damaged_outcome_is_refused(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(outcomes=[an_outcome(1, 1)]))
    damage(bench, "UPDATE outcomes SET outcome = 'ok'")
    with pytest.raises(JournalCorruptError, match="outcome of job number 1"):
        bench.reopen()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE meta SET value = 7 WHERE name = 'sequence'", "the sequence of the journal"),
        ("DELETE FROM meta WHERE name = 'epoch'", "the epoch of the journal is gone"),
        ("UPDATE starts SET offset_ms = 7", "start 1"),
        ("DELETE FROM starts", "the last start, epoch 1, is not there"),
        ("UPDATE kinds SET pool = 'other'", "kind 'send'"),
        ("UPDATE paused SET queue = 'other'", "a pause"),
        ("DROP INDEX jobs_done", "its tables are not those of its version"),
        ("ALTER TABLE meta RENAME COLUMN value TO valve", "its tables are not those of its version"),
    ],
)
def test_damage_to_what_a_start_rests_on_is_refused(bench: SqliteBench, statement: str, what: str) -> None:
    bench.journal.commit(Changes(kinds=[("send", "pool", {})], paused=[("mail", True)], sequence=1))
    damage(bench, statement)
    with pytest.raises(JournalCorruptError, match=what):
        bench.reopen()


def test_damaged_memory_of_an_id_is_refused_when_read_and_when_it_shall_be_forgotten(
    bench: SqliteBench,
) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.commit(Changes(deleted=[(1, "job-1", b"h" * 16, BOOT_MS + 10_000)]))
    damage(bench, f"UPDATE ids SET until_boot_ms = {BOOT_MS}")
    bench.reopen()
    with pytest.raises(JournalCorruptError, match="a remembered id"):
        bench.journal.find("job-1")
    bench.reopen()
    with pytest.raises(JournalCorruptError, match="a remembered id"):
        bench.journal.forget_ids(boot_ms=BOOT_MS, limit=10)


def test_index_that_lost_its_way_is_refused_at_the_start(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    damage(bench, "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'jobs_id'")
    root = "(SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_done')"
    sql(
        bench.path,
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('index', 'jobs_id', 'jobs', "
        f"{root}, 'CREATE UNIQUE INDEX jobs_id ON jobs (id)')",
    )
    with pytest.raises(JournalCorruptError, match="is damaged"):
        bench.reopen()


def test_log_that_is_folded_in_is_begun_anew_at_once(bench: SqliteBench) -> None:
    """Else it could lose its end, and its older pages would be put over the newer ones of the file."""
    for number in range(1, 8):
        bench.journal.commit(stored(an_image(number, reason="x" * 2000)))
    log = read_log(f"{bench.path}-wal", 4096)
    assert log is not None and len(log.commits) > 1
    assert bench.journal.checkpoint_if_due()
    anew = read_log(f"{bench.path}-wal", 4096)
    assert anew is not None and len(anew.commits) == 1


def test_job_in_a_state_that_does_not_exist_is_not_overlooked(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    damage(bench, "UPDATE jobs SET state = 'reedy'")
    with pytest.raises(JournalCorruptError, match="reedy"):
        bench.reopen()


def test_lost_anchor_of_a_job_is_refused(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.reopen()
    damage(bench, "DELETE FROM starts WHERE epoch = 1")
    with pytest.raises(JournalCorruptError, match="start"):
        bench.reopen()


def test_two_jobs_of_one_id_are_a_fault_and_not_a_replacement(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    with pytest.raises(JournalBrokenError, match="UNIQUE"):
        bench.journal.commit(stored(an_image(2, id="job-1")))
    assert [job.number for job in bench.crash().jobs] == [1]


# --- transactions and the log ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", [(2, "no", "such", "row"), an_outcome(2, 1, report={1, 2})])
def test_batch_that_cannot_be_written_is_rolled_back_whole(bench: SqliteBench, row: OutcomeRow) -> None:
    bench.journal.commit(stored(an_image(1)))
    bad = stored(an_image(2))
    bad.outcomes = [row]
    with pytest.raises((TypeError, JournalBrokenError)):
        bench.journal.commit(bad)
    with pytest.raises(JournalBrokenError, match="only a new start"):
        bench.journal.commit(stored(an_image(3)))
    assert [job.number for job in bench.crash().jobs] == [1]


def test_start_folds_the_log_of_a_crash_into_the_file(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1, reason="x" * 2000)))
    bench.crash()
    # What is in the log now is the new epoch alone, written after the checkpoint.
    assert wal_bytes(bench) < 15_000
    plain = bench.path + ".plain"
    Path(plain).write_bytes(Path(bench.path).read_bytes())
    assert sql(plain, "SELECT count(*) FROM jobs") == [(1,)]


def test_clean_end_leaves_one_file(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    bench.journal.close()
    assert [path.name for path in Path(bench.path).parent.iterdir()] == ["journal.db"]


def test_log_is_folded_in_when_it_has_grown_and_not_before(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1)))
    assert not bench.journal.checkpoint_if_due()
    bench.journal.commit(stored(*(an_image(n, reason="x" * 2000) for n in range(2, 10))))
    assert bench.journal.checkpoint_if_due()
    assert not bench.journal.checkpoint_if_due()


def test_log_stays_bounded_though_nobody_is_ever_idle(bench: SqliteBench) -> None:
    for number in range(1, 300):
        bench.journal.commit(stored(an_image(number, reason="x" * 2000)))
    assert bench.journal.statistics()["wal_bytes"] == wal_bytes(bench) < 2 * 8 * 40_000


def test_starts_that_no_row_names_are_forgotten(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2, state=State.DONE)))
    for _ in range(5):
        bench.reopen()
    bench.journal.close()
    assert sql(bench.path, "SELECT epoch FROM starts ORDER BY epoch") == [(1,), (5,), (6,)]


def test_old_outcomes_do_not_pile_up(bench: SqliteBench) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2)))
    for attempt in range(1, 41):
        bench.journal.commit(Changes(outcomes=[an_outcome(1, attempt)]))
    bench.journal.commit(Changes(outcomes=[an_outcome(2, 1)]))
    bench.journal.close()
    assert sql(bench.path, "SELECT number, count(*) FROM outcomes GROUP BY number") == [(1, 20), (2, 1)]


def test_durability_is_written_down(tmp_path: Path) -> None:
    path = str(tmp_path / "journal.db")
    journal = SqliteJournal(path, synchronous="NORMAL")
    load(journal)
    journal.close()
    assert sql(path, "SELECT value FROM meta WHERE name = 'synchronous'") == [("NORMAL",)]


# --- copies ---------------------------------------------------------------------------------------------


def restored(bench: SqliteBench, copy: str) -> SqliteJournal:
    journal = SqliteJournal(copy)
    recovered = load(journal)
    assert [image(job) for job in recovered.jobs] == [image(job) for job in bench.reopen().jobs]
    return journal


def test_restored_snapshot_equals_the_journal(bench: SqliteBench, tmp_path: Path) -> None:
    bench.journal.commit(stored(an_image(1), an_image(2, headers={"a": "b"}, attempts_max=3)))
    copy = str(tmp_path / "copy.db")
    bench.journal.snapshot(copy)
    journal = restored(bench, copy)
    assert journal.find("job-2", payload=True).payload == b"payload 2"
    journal.close()


def test_start_on_a_snapshot_has_an_epoch_above_all_that_were_since(
    bench: SqliteBench, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    bench.journal.snapshot(copy)
    again = shutil.copy(copy, tmp_path / "again.db")
    first = SqliteJournal(copy)
    began = load(first).epoch
    first.close()
    first = SqliteJournal(copy)
    assert (began > 1_000_000, load(first).epoch) == (True, began + 1)
    first.close()
    # The same copy once more, a minute later: above the starts on the first one.
    second = SqliteJournal(str(again))
    assert load(second, wall_ms=WALL_MS + 60_000).epoch == began + 600
    second.close()


def test_copy_that_was_started_on_is_a_journal_like_any_other(bench: SqliteBench, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    bench.journal.snapshot(copy)
    epochs: list[int] = []
    for minute in range(3):
        journal = SqliteJournal(copy)
        epochs.append(load(journal, wall_ms=WALL_MS + minute * 60_000).epoch)
        journal.close()
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


def test_start_on_a_snapshot_by_a_clock_that_is_wrong_is_the_next_one(
    bench: SqliteBench, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    bench.journal.snapshot(copy)
    journal = SqliteJournal(copy)
    assert load(journal, wall_ms=0).epoch == 2
    journal.close()


def test_snapshot_is_one_file(bench: SqliteBench, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    bench.journal.snapshot(str(tmp_path / "copies" / "copy.db"))
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy.db"]


def test_commits_between_the_steps_of_a_snapshot_are_in_it(bench: SqliteBench, tmp_path: Path) -> None:
    bench.journal.commit(stored(*(an_image(n, reason="x" * 2000) for n in range(1, 2001))))
    copy = str(tmp_path / "copy.db")
    number = 2001
    for _ in bench.journal.snapshot_steps(copy):
        if number < 2004:
            bench.journal.commit(stored(an_image(number)))
            bench.journal.commit(Changes(images=[an_image(number - 2000, queue="moved")]))
            number += 1
    assert number > 2001
    restored(bench, copy).close()


def test_given_up_snapshot_leaves_nothing_behind(bench: SqliteBench, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    steps = bench.journal.snapshot_steps(str(tmp_path / "copies" / "copy.db"))
    next(steps)
    steps.close()
    assert list((tmp_path / "copies").iterdir()) == []
    bench.journal.commit(stored(an_image(1)))


def test_plain_sql_reads_a_snapshot(bench: SqliteBench, tmp_path: Path) -> None:
    bench.journal.commit(stored(an_image(1, headers={"trace": "ä"}, id_by_caller=True)))
    bench.journal.snapshot(str(tmp_path / "copy.db"))
    connection = sqlite3.connect(tmp_path / "copy.db")
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM jobs").fetchone())
    connection.close()
    assert tuple(row) == (*COLUMNS, "crc")
    assert (row["state"], row["headers"], row["id_by_caller"]) == ("ready", '{"trace":"ä"}', 1)
