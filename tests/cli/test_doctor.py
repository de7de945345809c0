"""`stoker doctor`: one line for each finding, an exit code by the worst, and nothing changed."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine
from support.journals import an_image, load, sql, stored
from support.other_user import ROOT_ONLY, python_for_all, run_as
from support.other_user import UID as OTHER
from support.stack import Stack

from stoker.broker.lasterror import LastError, write_last_error
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.doctor import line
from stoker.config.exits import Exit
from stoker.doctor.finding import Finding, Level


@pytest.fixture
def data(short_directory: Path) -> Path:
    data = short_directory / "data"
    data.mkdir(mode=0o700)
    journal = SqliteJournal(str(data / "journal.db"))
    load(journal)
    journal.commit(stored(an_image(1)))
    journal.close()
    return data


def levels(out: str) -> dict[str, set[str]]:
    """The levels of the findings of each check."""
    found: dict[str, set[str]] = {}
    for finding in json.loads(out)["findings"]:
        found.setdefault(finding["check"], set()).add(finding["level"])
    return found


def test_sound_directory_without_a_broker_is_nothing_to_do(data: Path, stoker: CommandLine) -> None:
    ran = stoker("doctor", "--data", str(data), "--json")
    found = levels(ran.out)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert found["journal"] == found["directory"] == found["settings"] == {"ok"}
    assert found.keys() == {"versions", "kernel", "settings", "directory", "disk", "socket", "journal"}


def test_looking_changes_nothing(data: Path, stoker: CommandLine) -> None:
    before = [(each.name, each.stat().st_mtime_ns) for each in sorted(data.iterdir())]
    stoker("doctor", "--data", str(data))
    assert [(each.name, each.stat().st_mtime_ns) for each in sorted(data.iterdir())] == before


def test_missing_directory_is_not_made(short_directory: Path, stoker: CommandLine) -> None:
    ran = stoker("doctor", "--data", str(short_directory / "none"))
    assert ran.code == Exit.OK
    assert not (short_directory / "none").exists()


def test_damage_is_exit_10_and_each_finding_one_line(data: Path, stoker: CommandLine) -> None:
    sql(data / "journal.db", "UPDATE jobs SET priority = 7")
    ran = stoker("doctor", "--data", str(data))
    assert ran.code == Exit.UNFIT
    wrong = [text for text in ran.out.splitlines() if not text.startswith(("ok ", "note "))]
    assert len(wrong) == 1
    assert wrong[0].startswith("error    journal     ") and "restore a snapshot" in wrong[0]


def test_file_that_others_may_read_is_exit_9(data: Path, stoker: CommandLine) -> None:
    (data / "journal.db").chmod(0o644)
    assert stoker("doctor", "--data", str(data)).code == Exit.DOUBTFUL


def test_copy_is_looked_at_in_place_of_the_journal(data: Path, stoker: CommandLine) -> None:
    copy = data.parent / "copy"
    copy.write_text("no journal")
    copy.chmod(0o600)
    ran = stoker("doctor", "--data", str(data), "--journal", str(copy), "--json")
    assert ran.code == Exit.UNFIT
    assert levels(ran.out)["journal"] == {"error"}


def test_sound_copy_is_sound_whatever_is_wrong_beside_it(data: Path, stoker: CommandLine) -> None:
    copy = data.parent / "copy"
    copy.write_bytes((data / "journal.db").read_bytes())
    copy.chmod(0o400)
    (data / "journal.db").write_text("no journal")
    ran = stoker("doctor", "--data", str(data), "--journal", str(copy), "--json")
    assert (ran.code, levels(ran.out)) == (Exit.OK, {"journal": {"ok"}})


def test_copy_without_a_name_is_a_mistake(stoker: CommandLine) -> None:
    ran = stoker("doctor", "--journal", "")
    assert ran.code == Exit.USAGE and "--journal: names no file" in ran.err


@pytest.mark.parametrize(("is_damaged", "level", "code"), [(False, "note", 0), (True, "warning", 10)])
def test_error_before_a_start_is_over_when_every_row_was_read(
    data: Path, stoker: CommandLine, is_damaged: bool, level: str, code: int
) -> None:
    write_last_error(str(data), LastError(1, "DATA_REFUSED", "the payload of job number 1", 5))
    if is_damaged:
        sql(data / "journal.db", "UPDATE payloads SET payload = x'00'")
    ran = stoker("doctor", "--data", str(data), "--json")
    assert (ran.code, levels(ran.out)["last error"]) == (code, {level})


@pytest.mark.slow
def test_payload_that_was_damaged_stays_named_when_a_start_came_up_on_it(
    short_directory: Path, stoker: CommandLine
) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        job = stack.client.enqueue("kept", []).id
        stack.kill_broker()
        sql(stack.data / "journal.db", "UPDATE payloads SET payload = x'00'")
        stack.start_broker()
        stoker("show", job)
        assert stack.broker is not None and stack.broker.wait(10) == Exit.DATA_REFUSED
        stack.start_broker()
        ran = stoker("doctor", "--data", str(stack.data))
        assert ran.code == Exit.DOUBTFUL
        assert "the payload of job number 1 does not match its checksum" in ran.out
        assert "a later start came up, but a start looks at" in ran.out and "not at payloads" in ran.out


def test_copy_that_is_not_there_is_exit_10(data: Path, stoker: CommandLine) -> None:
    ran = stoker("doctor", "--data", str(data), "--journal", "/nope", "--json")
    assert ran.code == Exit.UNFIT
    assert levels(ran.out)["journal"] == {"error"}


@ROOT_ONLY
def test_journal_of_another_user_than_the_directory_is_exit_10(data: Path, stoker: CommandLine) -> None:
    os.chown(data, OTHER, OTHER)
    ran = stoker("doctor", "--data", str(data), "--json")
    assert ran.code == Exit.UNFIT
    assert levels(ran.out)["journal"] == {"error"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["journal.db", "journal.db-wal", "journal.db-shm", "last_error", "broker.lock", "settings"]
)
def test_pipe_in_place_of_a_file_is_told_and_not_waited_for(
    data: Path, stoker: CommandLine, name: str
) -> None:
    (data / name).unlink(missing_ok=True)
    os.mkfifo(data / name, 0o600)
    settings = ("--config", str(data / name)) if name == "settings" else ()
    ran = stoker("doctor", "--data", str(data), *settings)
    assert ran.code == Exit.UNFIT
    assert f"{data / name}: is" in ran.out


@pytest.mark.parametrize(
    ("text", "word"), [("[broker", "is not TOML"), ("[pool]\nworkers = 0\n", "pool.workers")]
)
def test_settings_that_are_wrong_are_errors_and_the_rest_is_looked_at(
    data: Path, stoker: CommandLine, text: str, word: str
) -> None:
    file = data.parent / "stoker.toml"
    file.write_text(text)
    ran = stoker("doctor", "--data", str(data), "--config", str(file), "--json")
    assert ran.code == Exit.UNFIT
    assert levels(ran.out)["settings"] == {"error"} and levels(ran.out)["journal"] == {"ok"}
    assert word in ran.out


def test_json_names_the_worst_level_and_what_to_do(data: Path, stoker: CommandLine) -> None:
    (data / "journal.db").chmod(0o644)
    report: dict[str, Any] = json.loads(stoker("doctor", "--data", str(data), "--json").out)
    assert report["worst"] == "warning"
    assert {frozenset(each) for each in report["findings"]} == {frozenset(("level", "check", "what", "do"))}
    assert "chmod 600 it" in [each["do"] for each in report["findings"]]


def test_what_a_file_says_cannot_command_the_terminal() -> None:
    assert line(Finding(Level.ERROR, "x", "\x1b[2J", "\n")) == "error    x           \\x1b[2J; \\n"


@pytest.mark.slow
def test_broker_that_runs_is_asked_and_its_journal_left_alone(
    short_directory: Path, stoker: CommandLine
) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        ran = stoker("doctor", "--data", str(stack.data), "--json")
        assert stack.broker is not None
        assert ran.code == Exit.OK, ran.out
        assert levels(ran.out)["broker"] == {"ok"} and levels(ran.out)["journal"] == {"note"}
        assert f"(pid {stack.broker.pid}) has it open" in ran.out
        stack.client.enqueue("still", [])


@pytest.mark.slow
def test_killed_broker_is_told_from_a_living_one(short_directory: Path, stoker: CommandLine) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("kept", [])
        stack.kill_broker()
        ran = stoker("doctor", "--data", str(stack.data), "--json")
        assert ran.code == Exit.DOUBTFUL
        assert levels(ran.out)["socket"] == {"ok", "warning"} and levels(ran.out)["journal"] == {"ok"}
        assert "1 jobs, 1 payloads" in ran.out


@pytest.mark.slow
def test_snapshot_of_a_broker_that_runs_can_be_checked(short_directory: Path, stoker: CommandLine) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        copy = stoker("snapshot", "look").out.strip()
        assert os.path.exists(copy)
        ran = stoker("doctor", "--data", str(stack.data), "--journal", copy, "--json")
        assert levels(ran.out)["journal"] == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal"])
def test_stopped_broker_whose_files_were_replaced_is_told(
    short_directory: Path, stoker: CommandLine, name: str
) -> None:
    if name.endswith("-wal") and os.getuid() != 0:
        pytest.skip("what a broker has open is shown to root alone")
    with Stack(short_directory) as stack:
        stack.start_broker()
        assert stack.broker is not None
        assert levels(stoker("doctor", "--data", str(stack.data), "--json").out)["journal"] == {"note"}
        stack.broker.send_signal(signal.SIGSTOP)
        (stack.data / name).rename(short_directory / name)
        (stack.data / name).write_bytes((short_directory / name).read_bytes())
        ran = stoker("doctor", "--data", str(stack.data), "--socket", "", "--json")
        assert ran.code == Exit.UNFIT
        assert f"{stack.data / name}: is not the file that the broker (pid {stack.broker.pid})" in ran.out
        stack.kill_broker()


@pytest.mark.slow
@ROOT_ONLY
def test_client_with_a_state_directory_of_his_own_is_a_client_all_the_same(short_directory: Path) -> None:
    short_directory.chmod(0o755)
    state = short_directory / "state"
    (state / "stoker").mkdir(parents=True, mode=0o700)
    os.chown(state / "stoker", OTHER, OTHER)
    with Stack(short_directory) as stack:
        stack.start_broker("--socket-mode", "0666")
        command = ["-m", "stoker.cli.main", "doctor", "--socket", stack.socket, "--json"]
        ran = run_as(OTHER, OTHER, [*python_for_all(), *command], env={"XDG_STATE_HOME": str(state)})
    assert levels(ran.stdout)["directory"] == {"note"}
    assert "error" not in levels(ran.stdout)["socket"] and "chown" not in ran.stdout


@ROOT_ONLY
def test_client_of_anothers_broker_has_nothing_to_do(short_directory: Path) -> None:
    short_directory.chmod(0o755)
    settings = short_directory / "stoker.toml"
    settings.write_text(f'[broker]\nsocket_mode = "0666"\n[access]\nsubmit = ["{OTHER}"]\n')
    settings.chmod(0o644)
    with Stack(short_directory) as stack:
        stack.start_broker("--config", str(settings))
        command = ["-m", "stoker.cli.main", "doctor", "--data", str(stack.data), "--socket", stack.socket]
        ran = run_as(OTHER, OTHER, [*python_for_all(), *command, "--json"])
    assert (ran.returncode, ran.stderr) == (Exit.OK, "")
    found = levels(ran.stdout)
    assert found["broker"] == found["socket"] == {"ok"} and found["directory"] == {"note"}
    assert "journal" not in found and "chown" not in ran.stdout
