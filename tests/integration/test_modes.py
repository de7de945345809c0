"""Modes and mounts with which no broker starts: it says what to do and is not restarted for it, and doctor sees it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.journals import an_image, load, stored
from support.other_user import GID, ROOT_ONLY, UID, python_for_all, run_as
from support.small_disk import MOUNTING, small_disk

from stoker.broker.sqlite import SqliteJournal
from stoker.config.exits import NEVER_RESTART, Exit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


class Places:
    """A state directory with a journal that was not closed, and where the socket is to be."""

    def __init__(self, directory: Path) -> None:
        self.data, self.run = directory / "data", directory / "run"
        for path in (self.data, self.run):
            path.mkdir(mode=0o700)
        journal = SqliteJournal(str(self.data / "journal.db"))
        load(journal)
        journal.commit(stored(an_image(1)))
        log = (self.data / "journal.db-wal").read_bytes()
        journal.close()
        (self.data / "journal.db-wal").write_bytes(log)
        for path in (self.data / "broker.lock", self.run / "broker.sock.lock", self.data / "journal.db-wal"):
            path.touch()
            path.chmod(0o600)

    def arguments(self, verb: str) -> list[str]:
        where = ["--data", str(self.data), "--socket", str(self.run / "broker.sock")]
        return [*python_for_all(), "-m", "stoker.cli.main", verb, *where]

    def broker(self, uid: int, gid: int) -> subprocess.CompletedProcess[str]:
        return run_as(uid, gid, self.arguments("broker"))

    def errors(self) -> list[str]:
        """What doctor calls an error when root asks."""
        ran = run_as(0, 0, [*self.arguments("doctor"), "--json"])
        found = json.loads(ran.stdout)["findings"]
        wrong = [f"{each['what']}; {each['do']}" for each in found if each["level"] == "error"]
        assert (ran.returncode == Exit.UNFIT) == bool(wrong)
        return wrong


@pytest.fixture
def places(short_directory: Path) -> Places:
    """Of another user."""
    short_directory.chmod(0o755)
    places = Places(short_directory)
    for path in (places.data, places.run, *places.data.iterdir(), *places.run.iterdir()):
        os.chown(path, UID, GID)
    return places


@ROOT_ONLY
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("data", 0o500),
        ("data", 0o600),
        ("run", 0o500),
        ("data/journal.db", 0o400),
        ("data/journal.db", 0),
        ("data/journal.db-wal", 0o400),
        ("data/broker.lock", 0o400),
        ("run/broker.sock.lock", 0o400),
    ],
)
def test_mode_that_keeps_the_owner_out_is_named_by_broker_and_doctor(
    places: Places, short_directory: Path, name: str, mode: int
) -> None:
    path = short_directory / name
    path.chmod(mode)
    ran = places.broker(UID, GID)
    assert ran.returncode == Exit.CANNOT_CREATE and Exit.CANNOT_CREATE in NEVER_RESTART
    assert f"{path}: " in ran.stderr and "; chmod u=rw" in ran.stderr
    (error,) = places.errors()
    assert error.startswith(f"{path}: ") and "; chmod u=rw" in error


@MOUNTING
def test_read_only_file_system_is_named_by_broker_and_doctor(short_directory: Path) -> None:
    with small_disk(short_directory / "disk", "96M") as disk:
        places = Places(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        ran = places.broker(0, 0)
        assert ran.returncode == Exit.CANNOT_CREATE
        assert "mounted read-only; mount it writable" in ran.stderr and "chmod" not in ran.stderr
        assert not any("chmod" in error for error in places.errors())


@MOUNTING
def test_journal_alone_on_a_read_only_mount_is_named(short_directory: Path) -> None:
    places = Places(short_directory)
    journal = str(places.data / "journal.db")
    with small_disk(short_directory / "disk", "1M"):
        subprocess.run(["mount", "--bind", journal, journal], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", journal], check=True)
            ran, errors = places.broker(0, 0), places.errors()
        finally:
            subprocess.run(["umount", journal], check=True)
    assert ran.returncode == Exit.CANNOT_CREATE
    assert f"{journal}: is on a file system that is mounted read-only" in ran.stderr
    assert any(error.startswith(f"{journal}: is on a file system") for error in errors)
