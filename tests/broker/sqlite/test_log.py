"""Damage in the log is told, not passed over; what a power cut may leave is not called damage."""

import random
import shutil
from pathlib import Path

import pytest
from support.journals import an_image, load, stored

from stoker.broker.refusals import JournalCorruptError
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.journal import Synchronous
from stoker.broker.sqlite.log import FRAME_HEADER_BYTES, HEADER_BYTES, read_log
from stoker.proto import limits

JOBS = 12
PAGE_BYTES = 4096
STEP = FRAME_HEADER_BYTES + PAGE_BYTES


def killed(directory: Path, synchronous: Synchronous = "FULL") -> Path:
    """The files of a journal with a commit for each job, as SIGKILL leaves them."""
    journal = SqliteJournal(str(directory / "live.db"), synchronous=synchronous)
    load(journal)
    for number in range(1, JOBS + 1):
        journal.commit(stored(an_image(number)))
    shutil.copy(directory / "live.db", directory / "journal.db")
    shutil.copy(directory / "live.db-wal", directory / "journal.db-wal")
    journal.close()
    return directory / "journal.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return killed(tmp_path)


def log_of(path: Path) -> Path:
    return Path(f"{path}-wal")


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(log_of(path).read_bytes())
    data[offset] ^= 1 << bit
    log_of(path).write_bytes(data)


def numbers(path: Path) -> list[int]:
    journal = SqliteJournal(str(path))
    try:
        return [job.number for job in load(journal).jobs]
    finally:
        journal.close()


def commits(path: Path) -> list[int]:
    log = read_log(str(log_of(path)), PAGE_BYTES)
    assert log is not None
    return list(log.commits)


def test_sound_log_has_a_commit_for_each_batch_and_the_epoch(path: Path) -> None:
    assert len(commits(path)) == JOBS + 1
    assert numbers(path) == list(range(1, JOBS + 1))


def test_journal_without_a_log_has_none_to_look_at(path: Path) -> None:
    assert read_log(f"{path}-nothing", PAGE_BYTES) is None


@pytest.mark.parametrize("place", ["header", "salt of a frame", "page", "checksum"])
def test_damage_before_other_commits_is_refused_and_nothing_changed(path: Path, place: str) -> None:
    frame = HEADER_BYTES + commits(path)[5] * STEP
    offsets = {"header": 18, "salt of a frame": frame + 9, "page": frame + 1000, "checksum": frame + 17}
    flip(path, offsets[place])
    before = (path.read_bytes(), log_of(path).read_bytes())
    with pytest.raises(JournalCorruptError, match="commits lie behind the damage"):
        numbers(path)
    assert (path.read_bytes(), log_of(path).read_bytes()) == before


def test_advice_of_the_refusal_works(path: Path) -> None:
    flip(path, HEADER_BYTES + commits(path)[5] * STEP + 1000)
    with pytest.raises(JournalCorruptError) as caught:
        numbers(path)
    size = int(str(caught.value).split("cutting it to ")[1].split(" ")[0])
    with log_of(path).open("r+b") as file:
        file.truncate(size)
    assert numbers(path) == [1, 2, 3, 4, 5]


def test_torn_last_commit_is_no_damage(path: Path) -> None:
    flip(path, log_of(path).stat().st_size - 100)
    assert numbers(path) == list(range(1, JOBS))


def test_log_cut_anywhere_is_no_damage(path: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = log_of(path).read_bytes()
    for size in (0, 31, 32, *(chance.randrange(len(whole)) for _ in range(20))):
        copy = tmp_path / f"cut-{size}.db"
        shutil.copy(path, copy)
        log_of(copy).write_bytes(whole[:size])
        found = numbers(copy)
        assert found == list(range(1, len(found) + 1))


def test_log_of_an_unsynced_journal_may_have_any_hole(tmp_path: Path) -> None:
    path = killed(tmp_path, "NORMAL")
    flip(path, HEADER_BYTES + commits(path)[5] * STEP + 1000)
    assert numbers(path) == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_no_flipped_bit_loses_more_than_the_last_commit_unnoticed(
    path: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for round_number in range(150):
        copy = tmp_path / f"flip-{round_number}.db"
        shutil.copy(path, copy)
        shutil.copy(log_of(path), log_of(copy))
        flip(copy, chance.randrange(log_of(copy).stat().st_size), chance.randrange(8))
        try:
            assert len(numbers(copy)) >= JOBS - 1
        except JournalCorruptError:
            continue


@pytest.mark.slow
def test_log_of_any_length_is_taken(tmp_path: Path) -> None:
    """SQLite's file access makes something else of a write of 128 KiB or more."""
    journal = SqliteJournal(str(tmp_path / "live.db"))
    load(journal)
    live = Path(f"{tmp_path}/live.db-wal")
    count = 0
    while live.stat().st_size < 2 * limits.MIB + PAGE_BYTES:
        count += 50
        journal.commit(stored(*(an_image(number) for number in range(count - 49, count + 1))))
    shutil.copy(tmp_path / "live.db", tmp_path / "journal.db")
    shutil.copy(live, tmp_path / "journal.db-wal")
    journal.close()
    assert len(numbers(tmp_path / "journal.db")) == count
