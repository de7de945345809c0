"""The state directory: what a broker would refuse, what others may read, what the last broker wrote down."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.broker.lasterror import LAST_ERROR, LastError, write_last_error
from stoker.doctor.directory import check_last_error, check_state, nearest, owner_of
from stoker.doctor.finding import Level, worst

UID = os.geteuid()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def symbolic_link(state: Path) -> None:
    state.rename(state.with_name("real"))
    state.symlink_to("real")


def fifo_in_place_of_the_lock(state: Path) -> None:
    os.mkfifo(state / "broker.lock")


def plain_file(state: Path) -> None:
    state.rmdir()
    state.touch()


UNSAFE: list[Callable[[Path], object]] = [
    lambda state: state.chmod(0o770),
    lambda state: state.parent.chmod(0o777),
    symbolic_link,
    fifo_in_place_of_the_lock,
    plain_file,
]


@pytest.mark.parametrize(
    "make_unsafe", UNSAFE, ids=["group writes", "all write above", "link", "FIFO", "file"]
)
def test_what_a_broker_would_refuse_is_an_error(state: Path, make_unsafe: Callable[[Path], object]) -> None:
    make_unsafe(state)
    (finding,) = check_state(str(state), UID)
    assert finding.level is Level.ERROR and str(state) in finding.what


def test_safe_directory_is_good_and_a_missing_one_a_note_and_not_made(state: Path) -> None:
    assert [finding.level for finding in check_state(str(state), UID)] == [Level.OK]
    missing = state / "more"
    assert [finding.level for finding in check_state(str(missing), UID)] == [Level.NOTE]
    assert not missing.exists()


def test_directory_of_another_user_is_an_error(state: Path) -> None:
    (finding,) = check_state(str(state), UID + 1)
    assert finding.level is Level.ERROR and f"belongs to uid {UID}" in finding.what


def test_file_that_others_may_read_is_a_warning(state: Path) -> None:
    (state / "journal.db").touch(0o644)
    (state / "ballast").touch(0o600)
    findings = [finding for finding in check_state(str(state), UID) if finding.level is Level.WARNING]
    assert [(finding.what.split(":")[0], finding.advice) for finding in findings] == [
        (f"{state}/journal.db", "chmod 600 it")
    ]


def test_root_looks_with_the_eyes_of_the_owner(state: Path) -> None:
    assert owner_of(str(state), 12345) == 12345
    assert owner_of(str(state), 0) == UID
    assert owner_of("/no/such/place", 0) == 0


def test_nearest_is_the_first_that_is_there(state: Path) -> None:
    assert nearest(str(state / "a" / "b")) == str(state)


@pytest.mark.parametrize(
    ("recovered_at_ms", "level", "word"), [(0, Level.WARNING, "EIO"), (5, Level.NOTE, "found it sound")]
)
def test_last_error_is_told_and_whether_it_is_over(
    state: Path, recovered_at_ms: int, level: Level, word: str
) -> None:
    write_last_error(str(state), LastError(1_700_000_000_000, "STORAGE", "EIO", recovered_at_ms))
    (finding,) = check_last_error(str(state))
    assert finding.level is level and word in finding.what and finding.what.startswith("2023-11-1")


def test_last_error_that_makes_no_sense_is_told_and_none_is_nothing(state: Path) -> None:
    assert list(check_last_error(str(state))) == []
    (state / LAST_ERROR).write_text("\x1b[31m")
    assert worst(check_last_error(str(state))) is Level.WARNING
