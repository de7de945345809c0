"""The journal: sound, damaged, not there, or a broker's that runs."""

import os
from pathlib import Path

import pytest
from support.journals import an_image, load, sql, stored
from support.other_user import ROOT_ONLY, python_as
from support.other_user import UID as OTHER

from stoker.broker.sqlite import SqliteJournal
from stoker.broker.sqlite.checkup import Checkup, check_up
from stoker.doctor.finding import Level
from stoker.doctor.journal import check_journal, holder_of, leave_journal

UID = os.geteuid()

ASK = """
import sys
from stoker.doctor.journal import check_journal
for finding in check_journal(sys.argv[1], int(sys.argv[2])):
    print(finding.level.name, finding.what, finding.advice, sep="; ")
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "journal.db")
    journal = SqliteJournal(path)
    load(journal)
    journal.commit(stored(an_image(1), an_image(2)))
    journal.close()
    return path


def test_sound_journal_is_good_and_its_rows_are_counted(path: str) -> None:
    (finding,) = check_journal(path, UID)
    assert finding.level is Level.OK
    assert "2 jobs, 2 payloads, 0 outcomes" in finding.what


def test_damage_is_an_error_with_what_to_do(path: str) -> None:
    sql(path, "UPDATE payloads SET payload = x'00' WHERE number = 2", "DELETE FROM payloads WHERE number = 1")
    findings = list(check_journal(path, UID))
    assert {finding.level for finding in findings} == {Level.ERROR}
    assert ["payload of job number 2" in each.what for each in findings] == [False, True]
    assert "1 jobs have lost their payload" in findings[0].what
    assert all("snapshot" in each.advice for each in findings)


def test_journal_that_was_cut_is_told_once_and_on_one_line(path: str) -> None:
    os.truncate(path, 8192)
    (finding,) = check_journal(path, UID)
    assert finding.level is Level.ERROR and "\n" not in finding.what
    assert finding.what.endswith("is damaged (database disk image is malformed)")
    assert finding.advice == "restore a snapshot"


def test_what_sqlite_says_on_several_lines_is_one(path: str) -> None:
    os.truncate(path, os.path.getsize(path) - 100)
    findings = list(check_journal(path, UID))
    assert findings and len(set(findings)) == len(findings)
    assert not any("\n" in finding.what for finding in findings)


def test_what_is_no_journal_is_an_error_and_a_missing_one_a_note(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 200)
    assert [each.level for each in check_journal(str(tmp_path / "text"), UID)] == [Level.ERROR]
    assert [each.level for each in check_journal(str(tmp_path / "none"), UID)] == [Level.NOTE]
    assert holder_of(str(tmp_path / "none")) is None


def test_missing_journal_that_was_named_is_an_error(tmp_path: Path) -> None:
    (finding,) = check_journal(str(tmp_path / "none"), UID, is_named=True)
    assert (finding.level, finding.what) == (Level.ERROR, f"{tmp_path / 'none'}: is not there")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", ["", "-wal", "-journal"])
def test_pipe_in_place_of_a_file_is_told_and_not_waited_for(path: str, end: str) -> None:
    Path(path + end).unlink(missing_ok=True)
    os.mkfifo(path + end)
    assert holder_of(path) is None
    (finding,) = check_journal(path, UID)
    assert finding.level is Level.ERROR
    assert finding.what == f"{path}{end}: is a FIFO, not a file; move it away"


@ROOT_ONLY
@pytest.mark.parametrize(("owner", "advice"), [(OTHER, "chmod u=rw it"), (UID, "run this as its owner")])
def test_journal_that_may_not_be_read_comes_with_what_helps(
    short_directory: Path, owner: int, advice: str
) -> None:
    short_directory.chmod(0o755)
    journal = short_directory / "journal.db"
    journal.write_bytes(b"something")
    journal.chmod(0)
    os.chown(journal, owner, owner)
    said = python_as(OTHER, OTHER, ASK, str(journal), str(owner))
    assert said.startswith(f"ERROR; {journal}: cannot be read: Permission denied; {advice}")


def test_journal_of_a_broker_that_runs_is_left_to_it(path: str) -> None:
    finding = leave_journal(path, 42)
    assert finding.level is Level.NOTE
    assert "pid 42" in finding.what and "stoker snapshot" in finding.advice
    assert "a broker has it open" in leave_journal(path, 0).what


def test_journal_that_changes_while_it_is_looked_at_is_not_judged(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside_a_broker(journal: str, uid: int) -> Checkup:
        found = check_up(journal, uid)
        os.utime(journal, ns=(0, 0))
        return found

    monkeypatch.setattr("stoker.doctor.journal.check_up", beside_a_broker)
    (finding,) = check_journal(path, UID)
    assert (finding.level, "was changed while it was looked at" in finding.what) == (Level.NOTE, True)
