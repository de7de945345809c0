"""A user who looks at the broker of another: what he is told, and what he is not told to do."""

import os
import socket
from pathlib import Path

import pytest
from support.other_user import OTHER_UID, ROOT_ONLY, python_as
from support.other_user import UID as OTHER

from stoker.doctor.finding import Level
from stoker.doctor.guest import check_guest, host_of
from stoker.doctor.listening import Listening

UID = os.geteuid()

ASK = """
import os, sys
from stoker.doctor.guest import check_guest, host_of
from stoker.doctor.listening import listening
path = sys.argv[1]
host = host_of(path, sys.argv[2], os.geteuid())
for finding in check_guest(path, host, listening(path)):
    print(finding.level.name, finding.check, finding.what, finding.advice, sep="; ")
"""


@pytest.fixture
def path(short_directory: Path) -> str:
    """Where a socket is bound."""
    path = str(short_directory / "s")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)
    return path


def test_broker_of_ones_own_has_no_guest(path: str, short_directory: Path) -> None:
    assert host_of(path, str(short_directory), UID) is None
    assert host_of("/none", "/none", UID) is None


def test_owner_of_socket_or_directory_is_the_host_unless_they_differ(path: str, tmp_path: Path) -> None:
    assert host_of(path, "/none", OTHER) == UID
    assert host_of("/none", str(tmp_path), OTHER) == UID
    assert host_of(str(tmp_path), path, OTHER) is None


def test_directory_of_this_user_is_no_danger_to_him(path: str) -> None:
    os.chmod(os.path.dirname(path), 0o700)
    findings = list(check_guest(path, OTHER, Listening()))
    assert [finding.level for finding in findings] == [Level.NOTE, Level.ERROR]
    assert "--socket" in findings[1].advice


@ROOT_ONLY
def test_who_owns_one_of_two_or_is_root_is_no_guest(path: str, tmp_path: Path) -> None:
    os.chown(tmp_path, OTHER, OTHER)
    assert host_of(path, str(tmp_path), OTHER) is None
    assert host_of(path, str(tmp_path), OTHER_UID) is None
    assert host_of("/none", str(tmp_path), 0) is None


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (Listening(), "no broker listens"),
        (Listening(trouble="cannot be connected to: Permission denied"), "Permission denied"),
        (Listening(7, OTHER), f"runs as uid {OTHER}, not as uid {UID}"),
    ],
)
def test_door_that_is_closed_or_a_strangers_is_an_error(path: str, found: Listening, word: str) -> None:
    error = next(each for each in check_guest(path, UID, found) if each.level is Level.ERROR)
    assert word in error.what and error.advice


@ROOT_ONLY
def test_guest_whom_the_socket_keeps_out_is_told_who_can_let_him_in(path: str) -> None:
    os.chmod(path, 0o600)
    os.chmod(os.path.dirname(path), 0o755)
    said = python_as(OTHER, OTHER, ASK, path, "/none").splitlines()
    assert [line.split(";")[0] for line in said] == ["NOTE", "ERROR"]
    assert f"is uid 0's, and this user (uid {OTHER}) is a client of it" in said[0]
    assert "[access]" in said[1] and "chown" not in "".join(said)
