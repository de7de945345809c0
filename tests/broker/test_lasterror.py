"""The last storage error outlives the broker that met it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.broker.lasterror import (
    LAST_ERROR,
    LastError,
    account,
    mark_recovered,
    read_last_error,
    refuse_lost,
    still_damaged,
    still_lost,
    write_last_error,
)
from stoker.broker.refusals import JournalLostEarlierError
from stoker.broker.whereabouts import GONE

ERROR = LastError(at_ms=1_700_000_000_000, exit_word="STORAGE", message="disk: \x1b[2J\nä")


def test_there_is_none_at_first(tmp_path: Path) -> None:
    assert read_last_error(str(tmp_path)) is None
    assert mark_recovered(str(tmp_path), 5)
    assert read_last_error(str(tmp_path)) is None


def test_error_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert write_last_error(str(tmp_path), ERROR)
    assert read_last_error(str(tmp_path)) == ERROR


def test_later_error_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    write_last_error(str(tmp_path), ERROR)
    write_last_error(str(tmp_path), ERROR._replace(message="other"))
    error = read_last_error(str(tmp_path))
    assert error is not None
    assert error.message == "other"


def test_file_is_private_and_one_line_of_printable_text(tmp_path: Path) -> None:
    write_last_error(str(tmp_path), ERROR)
    path = tmp_path / LAST_ERROR
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_bytes().decode("ascii")
    assert text.endswith("\n")
    assert text[:-1].isprintable()


def test_recovery_is_noted_and_the_error_kept(tmp_path: Path) -> None:
    write_last_error(str(tmp_path), ERROR)
    assert mark_recovered(str(tmp_path), 77)
    assert read_last_error(str(tmp_path)) == ERROR._replace(recovered_at_ms=77)


def test_file_that_makes_no_sense_counts_as_an_error(tmp_path: Path) -> None:
    for nonsense in ("", "[]", '{"at_ms": null}', "\x00" * 9):
        (tmp_path / LAST_ERROR).write_text(nonsense)
        error = read_last_error(str(tmp_path))
        assert error is not None
        assert (error.exit_word, error.recovered_at_ms) == ("STORAGE", 0)


def test_error_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    (tmp_path / LAST_ERROR).write_text(
        '{"at_ms": 1, "exit_word": "STORAGE", "message": "x", "recovered_at_ms": 2}'
    )
    assert read_last_error(str(tmp_path)) == LastError(1, "STORAGE", "x", 2)


def test_lost_files_are_refused_until_they_are_back(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    file.touch()
    lost = ERROR._replace(lost_files=(("journal.db", file.stat().st_ino),))
    refuse_lost(str(tmp_path), lost)
    file.rename(tmp_path / "away")
    with pytest.raises(JournalLostEarlierError, match=f"{file}: is not the file .* remove {tmp_path}"):
        refuse_lost(str(tmp_path), lost)


def test_files_stay_lost_until_a_start_was_made_on_them(tmp_path: Path) -> None:
    assert still_lost(str(tmp_path)) == ()
    lost = ERROR._replace(lost_files=(("journal.db", 7),))
    write_last_error(str(tmp_path), lost)
    assert still_lost(str(tmp_path)) == lost.lost_files
    mark_recovered(str(tmp_path), 77)
    assert still_lost(str(tmp_path)) == ()


def test_damage_is_kept_through_a_start_and_told_beside_a_later_error(tmp_path: Path) -> None:
    assert still_damaged(str(tmp_path)) == ""
    write_last_error(str(tmp_path), ERROR._replace(message="page 3", damage="page 3"))
    mark_recovered(str(tmp_path), 77)
    assert still_damaged(str(tmp_path)) == "page 3"
    assert account(ERROR._replace(message="page 3", damage="page 3")) == "page 3"
    assert account(ERROR._replace(message="EIO", damage="page 3")) == "EIO; before that page 3"


def test_failure_to_write_is_told_and_not_raised(tmp_path: Path) -> None:
    assert not write_last_error(str(tmp_path / "nowhere"), ERROR)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["FIFO", "directory"])
def test_what_is_no_file_is_not_waited_for_and_not_replaced(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / LAST_ERROR
    make(path)
    error = read_last_error(str(tmp_path))
    assert error is not None and str(path) in error.message
    assert not write_last_error(str(tmp_path), ERROR)
    assert not path.is_file()


def test_note_that_would_be_written_into_a_fifo_is_not_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{LAST_ERROR}.new")
    assert not write_last_error(str(tmp_path), ERROR)


def test_file_that_was_cut_is_refused_until_the_note_is_gone(tmp_path: Path) -> None:
    (tmp_path / "journal.db-wal").touch()
    cut = ERROR._replace(lost_files=(("journal.db-wal", GONE),))
    write_last_error(str(tmp_path), cut)
    read = read_last_error(str(tmp_path))
    assert read is not None
    with pytest.raises(JournalLostEarlierError, match=f"journal.db-wal: was cut .* remove {tmp_path}"):
        refuse_lost(str(tmp_path), read)
