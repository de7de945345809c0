"""The state directory: what a broker would refuse, what others may read, what the last broker wrote down."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.other_user import ROOT_ONLY, python_as
from support.other_user import UID as OTHER

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


@pytest.fixture
def others_state(short_directory: Path) -> Path:
    """Of another user, who can get there."""
    short_directory.chmod(0o755)
    path = short_directory / "state"
    path.mkdir(mode=0o700)
    os.chown(path, OTHER, OTHER)
    return path


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


def test_output_that_others_may_look_at_or_that_is_no_directory_is_a_warning(state: Path) -> None:
    output = state / "output"
    output.mkdir(mode=0o700)
    assert worst(check_state(str(state), UID)) is Level.OK
    output.chmod(0o750)
    (*_, finding) = check_state(str(state), UID)
    assert (finding.level, finding.advice) == (Level.WARNING, "chmod 700 it")
    output.rmdir()
    output.symlink_to("/")
    (*_, finding) = check_state(str(state), UID)
    assert (finding.level, finding.advice) == (Level.WARNING, "move it away")


@pytest.mark.parametrize("mode", [0o777, 0o707])
def test_directory_that_cannot_be_made_safely_is_an_error(state: Path, mode: int) -> None:
    state.chmod(mode)
    (finding,) = check_state(str(state / "a" / "b"), UID)
    assert finding.level is Level.ERROR and f"{state} is writable by others" in finding.what
    assert list(state.iterdir()) == []


def test_directory_below_a_file_or_a_link_to_nothing_cannot_be_made(state: Path) -> None:
    (state / "link").symlink_to("none")
    (state / "file").touch()
    for name in ("link", "file"):
        (finding,) = check_state(str(state / name / "b"), UID)
        assert finding.level is Level.ERROR


ASK = """
import sys
from stoker.doctor.directory import check_last_error, check_state
for finding in (*check_state(sys.argv[1], int(sys.argv[2])), *check_last_error(sys.argv[1])):
    print(finding.level.name, finding.what, finding.advice, sep="; ")
"""


@ROOT_ONLY
def test_directory_that_this_user_cannot_make_is_an_error() -> None:
    said = python_as(OTHER, OTHER, ASK, "/nonexistent/stoker", str(OTHER))
    assert said == (
        "ERROR; /nonexistent/stoker: cannot be made: nothing may be made in /; choose another with --data; \n"
    )


@ROOT_ONLY
def test_nobody_is_told_to_change_a_directory_of_another_user(short_directory: Path) -> None:
    os.chmod(short_directory, 0o755)
    said = python_as(OTHER, OTHER, ASK, str(short_directory), str(OTHER))
    assert said.startswith(
        f"ERROR; {short_directory}: belongs to uid 0, not to uid {OTHER}; choose another with"
    )
    assert "chown" not in said


@ROOT_ONLY
def test_last_error_that_may_not_be_read_is_no_error_of_the_broker(short_directory: Path) -> None:
    (short_directory / LAST_ERROR).touch(0o600)
    os.chmod(short_directory, 0o755)
    said = python_as(OTHER, OTHER, ASK, str(short_directory), str(OTHER)).splitlines()[-1]
    assert said.startswith("WARNING") and said.endswith("Permission denied; run this as its owner or as root")


def test_nobody_has_no_broker(state: Path) -> None:
    first = next(iter(check_state(str(state), 65534)))
    assert first.level is Level.ERROR and "stands for every user" in first.what


@ROOT_ONLY
def test_files_of_others_that_a_broker_has_to_write_are_errors(others_state: Path) -> None:
    state = others_state
    for name in ("journal.db-wal", "last_error"):
        (state / name).touch(0o600)
    found = {finding.what.split(":")[0]: finding.level for finding in check_state(str(state), OTHER)}
    assert found[f"{state}/journal.db-wal"] is Level.ERROR
    assert found[f"{state}/last_error"] is Level.WARNING


def test_root_looks_with_the_eyes_of_the_owner(state: Path) -> None:
    assert owner_of(str(state), 12345) == 12345
    assert owner_of(str(state), 0) == UID
    assert owner_of("/no/such/place", 0) == 0


def test_nearest_is_the_first_that_is_there(state: Path) -> None:
    assert nearest(str(state / "a" / "b")) == str(state)


@ROOT_ONLY
@pytest.mark.parametrize(
    ("name", "mode", "level", "advice"),
    [
        ("", 0o500, Level.ERROR, "chmod u=rwx it"),
        ("journal.db", 0o400, Level.ERROR, "chmod u=rw it"),
        ("journal.db", 0, Level.ERROR, "chmod u=rw it"),
        ("journal.db-wal", 0o400, Level.ERROR, "chmod u=rw it"),
        ("broker.lock", 0o400, Level.ERROR, "chmod u=rw it"),
        ("ballast", 0o400, Level.WARNING, "chmod u=rw it"),
        ("output", 0o500, Level.WARNING, "chmod u=rwx it"),
    ],
)
def test_modes_count_as_they_do_for_the_owner_when_root_looks(
    others_state: Path, name: str, mode: int, level: Level, advice: str
) -> None:
    path = others_state / name
    if name == "output":
        path.mkdir()
    elif name:
        path.touch()
    os.chown(path, OTHER, OTHER)
    path.chmod(mode)
    (finding,) = [each for each in check_state(str(others_state), OTHER) if each.level is not Level.OK]
    assert finding.level is level and advice in f"{finding.what}; {finding.advice}"


@ROOT_ONLY
def test_directory_that_its_owner_cannot_reach_is_an_error(others_state: Path) -> None:
    others_state.parent.chmod(0o700)
    (finding,) = check_state(str(others_state), OTHER)
    assert finding.level is Level.ERROR and f"{others_state.parent} has mode 0700" in finding.what


def test_directory_that_others_may_look_into_is_a_warning(state: Path) -> None:
    state.chmod(0o755)
    found = {finding.level: finding for finding in check_state(str(state), UID)}
    assert found[Level.WARNING].advice == "chmod 700 it" and "has mode 0755" in found[Level.WARNING].what


@pytest.mark.parametrize(
    ("recovered_at_ms", "is_sound", "level", "word", "advice"),
    [
        (0, False, Level.WARNING, "EIO", "not at payloads"),
        (0, True, Level.WARNING, "EIO", "every row of the journal is right now"),
        (5, False, Level.WARNING, "a later start came up, but .* not at payloads", "with the broker stopped"),
        (5, True, Level.NOTE, "now every row of the journal is right", "remove "),
    ],
)
def test_last_error_is_told_and_what_was_looked_at_since(
    state: Path, recovered_at_ms: int, is_sound: bool, level: Level, word: str, advice: str
) -> None:
    write_last_error(str(state), LastError(1_700_000_000_000, "STORAGE", "EIO", recovered_at_ms))
    (finding,) = check_last_error(str(state), is_sound=is_sound)
    assert finding.level is level and advice in finding.advice
    assert re.match(f"2023-11-1.*{word}", finding.what)


def test_damage_stays_named_when_a_later_error_is_about_something_else(state: Path) -> None:
    write_last_error(str(state), LastError(1, "STORAGE", "EIO", 5, damage="the payload of job number 7"))
    (finding,) = check_last_error(str(state))
    assert "EIO; before that the payload of job number 7" in finding.what


def test_lost_files_are_an_error_until_they_are_back(state: Path) -> None:
    (state / "journal.db").touch(0o600)
    lost = LastError(
        1, "STORAGE", "is gone", lost_files=(("journal.db", (state / "journal.db").stat().st_ino),)
    )
    write_last_error(str(state), lost)
    assert worst(check_last_error(str(state))) is Level.WARNING
    (state / "journal.db").unlink()
    (finding,) = check_last_error(str(state))
    assert finding.level is Level.ERROR and f"remove {state / LAST_ERROR}" in finding.advice


def test_last_error_that_makes_no_sense_is_told_and_none_is_nothing(state: Path) -> None:
    assert list(check_last_error(str(state))) == []
    (state / LAST_ERROR).write_text("\x1b[31m")
    assert worst(check_last_error(str(state))) is Level.WARNING
