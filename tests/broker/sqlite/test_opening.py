"""What is not a journal of ours is refused by name, and not one byte of it is changed."""

import hashlib
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from support.journals import an_image, load, sql, stored

from stoker.broker.refusals import (
    JournalCorruptError,
    JournalEmptyError,
    JournalForeignError,
    JournalNewerError,
    JournalOrphanedError,
    JournalUnusableError,
    LibraryTooOldError,
    OwnedError,
    StartRefusedError,
)
from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.opening import check_libraries
from stoker.broker.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from stoker.config.exits import NEVER_RESTART, Exit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def start(path: Path, *, check: bool = False) -> SqliteJournal:
    journal = SqliteJournal(str(path), check=check)
    load(journal)
    return journal


def make(path: Path) -> None:
    """A journal with one job, closed."""
    journal = start(path)
    journal.commit(stored(an_image(1)))
    journal.close()


def pragma(path: Path, statement: str) -> None:
    sql(path, "PRAGMA journal_mode = DELETE", f"PRAGMA {statement}")


def of_another_program(path: Path) -> None:
    make(path)
    pragma(path, "application_id = 12345")


def of_a_later_release(path: Path) -> None:
    make(path)
    pragma(path, f"user_version = {SCHEMA_VERSION + 1}")


def of_a_later_release_by_its_log(path: Path) -> None:
    make(path)
    sql(path, "PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        # Its close would fold the log in.
        files = [(each, each.read_bytes()) for each in path.parent.glob(f"{path.name}*")]
    for each, content in files:
        if not each.name.endswith("-shm"):
            each.write_bytes(content)


def without_version(path: Path) -> None:
    make(path)
    pragma(path, "user_version = 0")


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0")


def log_alone(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"something")


def writable_by_others(path: Path) -> None:
    make(path)
    path.chmod(0o620)


def link_to_a_journal(path: Path) -> None:
    make(path.with_name("real.db"))
    path.symlink_to("real.db")


def copy_beside_the_log_of_another(path: Path) -> None:
    make(path)
    pragma(path, "cache_size = 1")
    log_alone(path)


def half_of_a_journal(path: Path) -> None:
    make(path)
    path.write_bytes(path.read_bytes()[:8192])


def left_by_another_program(path: Path) -> None:
    """As SIGKILL leaves it in the middle of a change in SQLite's older way."""
    make(path)
    connection: Any = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = DELETE; BEGIN; DELETE FROM jobs").fetchall()
    connection.cache_flush()
    copies = [(each.name, each.read_bytes()) for each in path.parent.iterdir()]
    connection.close()
    for name, data in copies:
        path.with_name(name).write_bytes(data)
    assert path.with_name("journal.db-journal").stat().st_size


WRONG: dict[Callable[[Path], object], type[StartRefusedError]] = {
    of_another_program: JournalForeignError,
    of_a_later_release: JournalNewerError,
    without_version: JournalForeignError,
    random_bytes: JournalForeignError,
    short: JournalForeignError,
    Path.touch: JournalEmptyError,
    Path.mkdir: JournalForeignError,
    os.mkfifo: JournalForeignError,
    log_alone: JournalOrphanedError,
    writable_by_others: JournalUnusableError,
    link_to_a_journal: JournalForeignError,
    copy_beside_the_log_of_another: JournalOrphanedError,
    half_of_a_journal: JournalCorruptError,
    left_by_another_program: JournalOrphanedError,
}


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    """Mode and hash of everything that is there, but for a log with nothing in it."""
    return {
        path.name: (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(directory.iterdir())
        if path.lstat().st_size or not path.name.endswith("-wal")
    }


@pytest.mark.parametrize("make_wrong", WRONG, ids=lambda make: make.__name__)
def test_wrong_file_is_refused_by_name_and_left_as_it_is(
    path: Path, make_wrong: Callable[[Path], object]
) -> None:
    make_wrong(path)
    before = fingerprint(path.parent)
    with pytest.raises(WRONG[make_wrong]) as caught:
        start(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_word == ("CANNOT_CREATE" if make_wrong is writable_by_others else "DATA_REFUSED")
    assert Exit[caught.value.exit_word] in NEVER_RESTART
    assert fingerprint(path.parent) == before


def test_socket_is_refused(short_directory: Path) -> None:
    path = short_directory / "journal.db"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(JournalForeignError):
            start(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused(path: Path) -> None:
    make(path)
    os.chown(path, 12345, 12345)
    with pytest.raises(JournalUnusableError, match="uid 12345"):
        start(path)


@pytest.mark.parametrize("name", ["journal.db", "other.db"])
def test_file_of_two_names_is_refused_by_either(path: Path, name: str) -> None:
    start(path).close()
    os.link(path, path.with_name("other.db"))
    with pytest.raises(JournalUnusableError, match="has 2 names"):
        start(path.with_name(name))
    os.unlink(path.with_name("other.db"))
    start(path).close()


@pytest.mark.parametrize("umask", [0, 0o777])
def test_journal_is_private_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        journal = start(path)
        journal.commit(stored(an_image(1)))
    finally:
        os.umask(before)
    modes = {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600}
    journal.close()


def test_copy_that_others_may_read_is_made_private(path: Path) -> None:
    make(path)
    path.chmod(0o644)
    start(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_snapshot_put_beside_the_log_of_a_killed_broker_is_refused(path: Path, tmp_path: Path) -> None:
    journal = start(path)
    copy = tmp_path / "copy.db"
    journal.snapshot(str(copy))
    journal.commit(stored(an_image(1)))
    log = Path(f"{path}-wal").read_bytes()
    journal.close()
    Path(f"{copy}-wal").write_bytes(log)
    with pytest.raises(JournalOrphanedError, match="move that away"):
        start(copy)
    assert Path(f"{copy}-wal").read_bytes() == log


def test_new_journal_says_whose_it_is(path: Path) -> None:
    start(path).close()
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == SCHEMA_VERSION


def test_leftover_of_an_interrupted_creation_is_no_obstacle(path: Path) -> None:
    path.with_name("journal.db.new").write_bytes(b"half")
    start(path).close()
    assert [each.name for each in path.parent.iterdir()] == ["journal.db"]


def test_second_opener_is_refused_and_the_first_goes_on(path: Path) -> None:
    journal = start(path)
    with pytest.raises(OwnedError, match="in use"):
        start(path)
    journal.commit(stored(an_image(1)))
    assert journal.payload(1) == b"payload 1"
    journal.close()


@pytest.mark.slow
def test_opener_in_another_process_is_refused(path: Path) -> None:
    journal = start(path)
    code = (
        "import sys; from stoker.broker.sqlite import SqliteJournal\n"
        "try: SqliteJournal(sys.argv[1]).load(boot_id='b', boot_ms=1, wall_ms=1)\n"
        "except Exception as error: sys.exit(type(error).__name__)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.stderr.strip() == "OwnedError"
    journal.commit(stored(an_image(1)))
    journal.close()


def test_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusableError, match="nowhere"):
        start(tmp_path / "nowhere" / "journal.db")


def test_damage_is_found_by_the_check_after_a_storage_error(path: Path) -> None:
    make(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        # The cell count of the last page, which belongs to a table that no start reads.
        file.seek(size - 4096 + 3)
        file.write(b"\xff\xff")
    with pytest.raises(JournalCorruptError):
        start(path, check=True)


def test_check_passes_a_sound_journal(path: Path) -> None:
    make(path)
    start(path, check=True).close()


@pytest.mark.parametrize("version", ["3.51.2", "3.40.1"])
def test_sqlite_with_the_reset_race_is_refused(version: str) -> None:
    with pytest.raises(LibraryTooOldError, match=r"3\.51\.3"):
        check_libraries(sqlite=version)


def test_msgpack_with_the_unpacker_fault_is_refused() -> None:
    with pytest.raises(LibraryTooOldError, match=r"1\.2\.1"):
        check_libraries(msgpack_version=(1, 2, 0))


def test_libraries_of_this_environment_pass() -> None:
    check_libraries()


def test_later_release_that_only_the_log_tells_of_is_refused(path: Path) -> None:
    of_a_later_release_by_its_log(path)
    with pytest.raises(JournalNewerError):
        start(path)
