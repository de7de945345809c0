"""A whole journal looked at: every kind of damage is found, and not a byte is changed by looking."""

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest
from support.journals import an_image, an_outcome, load, sql, stored

from stoker.broker.core.effects import Changes
from stoker.broker.refusals import JournalForeignError, JournalOrphanedError, JournalUnusableError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.checkup import DAMAGED_ROWS_SHOWN, Checkup, check_up
from stoker.broker.sqlite.log import FRAME_HEADER_BYTES, HEADER_BYTES

UID = os.geteuid()
JOBS = 8
SOUND = Checkup(JOBS, JOBS, 2, ())
PAGE_BYTES = 4096


def filled(path: Path) -> SqliteJournal:
    journal = SqliteJournal(str(path))
    load(journal)
    for number in range(1, JOBS + 1):
        journal.commit(stored(an_image(number)))
    journal.commit(Changes(outcomes=[an_outcome(1, 1), an_outcome(1, 2)]))
    return journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal that was closed in order."""
    filled(tmp_path / "journal.db").close()
    return tmp_path / "journal.db"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """As SIGKILL leaves it: most of it is in the log."""
    journal = filled(tmp_path / "live.db")
    (tmp_path / "after").mkdir()
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path / 'live.db'}{end}", f"{tmp_path / 'after' / 'journal.db'}{end}")
    journal.close()
    return tmp_path / "after" / "journal.db"


def prints(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        each.name: (hashlib.sha256(each.read_bytes()).hexdigest(), each.stat().st_mtime_ns)
        for each in directory.iterdir()
        if each.is_file()
    }


@pytest.mark.parametrize("which", ["path", "killed"])
def test_sound_journal_is_counted_and_left_as_it_is(request: pytest.FixtureRequest, which: str) -> None:
    path: Path = request.getfixturevalue(which)
    before = prints(path.parent)
    assert check_up(str(path), UID) == SOUND
    assert prints(path.parent) == before


def test_snapshot_is_looked_at_like_a_journal(path: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(str(path))
    load(journal)
    journal.snapshot(str(tmp_path / "copy"))
    journal.close()
    assert check_up(str(tmp_path / "copy"), UID) == SOUND


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE jobs SET priority = 7 WHERE number = 3", "the row of job number 3 does not match"),
        ("UPDATE payloads SET payload = 'text' WHERE number = 3", "the payload of job number 3 does not"),
        ("UPDATE outcomes SET reason = '' WHERE attempt = 2", "an outcome of job number 1 does not match"),
        ("DELETE FROM payloads WHERE number = 3", "1 jobs have lost their payload"),
        ("UPDATE jobs SET queue = CAST(x'ff' AS TEXT) WHERE number = 3", "can't decode byte"),
        ("UPDATE starts SET boot_ms = 7", "a row of starts does not match"),
        ("CREATE INDEX more ON jobs (kind)", "its tables are not those of its version"),
    ],
    ids=["job", "payload", "outcome", "lost payload", "no text", "start", "another table"],
)
def test_damaged_row_of_each_table_is_found(path: Path, change: str, says: str) -> None:
    sql(path, change)
    (damage,) = check_up(str(path), UID).damage
    assert damage.startswith(f"{path}: ") and says in damage


def test_many_damaged_rows_are_summed_up(path: Path) -> None:
    sql(path, "UPDATE jobs SET priority = 7")
    damage = check_up(str(path), UID).damage
    assert len(damage) == DAMAGED_ROWS_SHOWN + 1
    assert f"{JOBS} rows of jobs in all" in damage[-1]


def test_hole_in_the_log_is_found(killed: Path) -> None:
    log = Path(f"{killed}-wal")
    data = bytearray(log.read_bytes())
    data[HEADER_BYTES + 2 * (FRAME_HEADER_BYTES + PAGE_BYTES) + 1000] ^= 1
    log.write_bytes(data)
    assert any("commits lie behind the damage" in line for line in check_up(str(killed), UID).damage)


def test_page_that_sqlite_cannot_read_is_found(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-PAGE_BYTES + 3, os.SEEK_END)
        file.write(b"\xff\xff")
    assert check_up(str(path), UID).damage


def test_what_is_no_journal_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 200)
    (tmp_path / "gone.db-wal").write_bytes(b"x")
    with pytest.raises(JournalForeignError):
        check_up(str(tmp_path / "other"), UID)
    with pytest.raises(JournalOrphanedError):
        check_up(str(tmp_path / "gone.db"), UID)
    with pytest.raises(JournalUnusableError):
        check_up(str(path), UID + 1)
    with pytest.raises(FileNotFoundError):
        check_up(str(tmp_path / "none"), UID)


@pytest.mark.slow
def test_flipped_bit_never_ends_the_look_with_an_error_without_a_name(
    path: Path, tmp_path: Path, seed: int
) -> None:
    chance, whole = random.Random(seed), path.read_bytes()
    flipped, found = tmp_path / "flipped.db", 0
    for _ in range(300):
        data = bytearray(whole)
        # Not the header, whose damage has its own refusals.
        data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
        flipped.write_bytes(data)
        flipped.chmod(0o600)
        found += bool(check_up(str(flipped), UID).damage)
    assert found


def test_payload_whose_number_is_lost_is_damage(path: Path) -> None:
    sql(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER PRIMARY KEY', 'INTEGER') WHERE name = 'payloads'",
    )
    assert "a payload has the number None" in "".join(check_up(str(path), UID).damage)
