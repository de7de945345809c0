"""Errors become one line and an exit code; help lists every command; nothing heavy is loaded."""

import os
import signal
import subprocess
import sys

import click
import pytest
from support.command_line import CommandLine
from support.scripted_broker import Close, Hang, ScriptedBroker
from support.waiting import wait_until

from stoker.cli import options
from stoker.cli.main import COMMANDS, cli, run
from stoker.config.durations import format_duration
from stoker.config.exits import INTERRUPTED
from stoker.proto import messages
from stoker.worker.supervisor import DRAIN_MS

HEAVY = ("trio", "apsw", "attrs", "attr", "stoker.broker", "stoker.worker", "stoker.proto.ops")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    assert f"stoker {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"demo", "decode"}))
def test_every_command_takes_a_socket(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert "socket" in [parameter.name for parameter in command.params]


@pytest.mark.parametrize("name", ["status", "jobs", "show", "why", "wait"])
def test_every_read_has_json(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert "as_json" in [parameter.name for parameter in command.params]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_help_tells_how_long_a_drain_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    run(["pool", "--help"])
    assert f"after TERM. Default: {format_duration(DRAIN_MS)}." in " ".join(capsys.readouterr().out.split())


def test_advice_on_a_wrong_command_line_is_a_sentence_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    run(["enqueue", "add", "--args", "{}"])
    assert "must be a list. See `stoker enqueue --help`." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("It is wrong", "It is wrong."),
        ("It is wrong.", "It is wrong."),
        ("Did you mean this?", "Did you mean this?"),
        ("It is wrong. (Did you mean this?)", "It is wrong. (Did you mean this?)"),
        ("It is wrong (or not)", "It is wrong (or not)."),
    ],
)
def test_every_sentence_about_a_wrong_command_line_ends(
    said: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise click.UsageError(said)

    monkeypatch.setattr(cli, "main", refuse)
    assert run(["status"]) == 2
    assert capsys.readouterr().err == f"stoker: {shown} See `stoker --help`.\n"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stoker ")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["show"], ["enqueue", "k", "--nonsense"], ["jobs", "--limit", "0"], ["kick"]]
)
def test_wrong_command_line_is_one_line_and_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "--help" in err


@pytest.mark.parametrize(
    ("code_word", "exit_code"), [("job_not_found", 3), ("queue_full", 4), ("forbidden", 4), ("newer_word", 4)]
)
def test_refusal_is_one_line_and_its_exit_code(
    code_word: str, exit_code: int, socket_path: str, stoker: CommandLine
) -> None:
    refusal = messages.Refusal(code_word, "because \x1b[2J\nof this")
    with ScriptedBroker(socket_path, lambda _: refusal):
        ran = stoker("why", "a")
    assert ran.code == exit_code
    assert ran.err.startswith(f"stoker: {code_word}: because \\x1b[2J\\nof this")
    assert len(ran.err.splitlines()) == 1


def test_no_broker_is_exit_5_and_says_what_to_start(stoker: CommandLine) -> None:
    ran = stoker("why", "a")
    assert ran.code == 5
    assert "stoker up" in ran.err


def test_lost_answer_to_a_change_is_exit_7(socket_path: str, stoker: CommandLine) -> None:
    with ScriptedBroker(socket_path, lambda _: Close()):
        ran = stoker("cancel", "a")
    assert ran.code == 7
    assert "may or may not" in ran.err


def test_socket_path_that_is_too_long_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--socket", "/" + "x" * 107]) == 2
    assert "107" in capsys.readouterr().err


def _environment(socket: str) -> dict[str, str]:
    return {**os.environ, "STOKER_SOCKET": socket}


@pytest.mark.slow
def test_reader_that_goes_away_ends_a_command_quietly(socket_path: str) -> None:
    rows = [{"id": f"job-{number}", "reason": "x" * 60} for number in range(1000)]
    page = messages.JobsPage(rows, 1000)
    with ScriptedBroker(socket_path, lambda _: page):
        command = [sys.executable, "-m", "stoker.cli.main", "jobs", "--all"]
        with subprocess.Popen(
            command, env=_environment(socket_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(20) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""


@pytest.mark.slow
def test_full_output_device_is_an_error(socket_path: str) -> None:
    page = messages.JobsPage([{"id": "a"}], 0)
    with ScriptedBroker(socket_path, lambda _: page), open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "stoker.cli.main", "jobs"]
        ran = subprocess.run(
            command, env=_environment(socket_path), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ran.returncode == 1
    assert b"No space left" in ran.stderr


@pytest.mark.slow
def test_enqueue_loads_nothing_heavy(socket_path: str) -> None:
    code = (
        "import sys; from stoker.cli.main import run; code = run(['enqueue', 'k']);"
        f"print([name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    with ScriptedBroker(socket_path, lambda r: messages.Enqueued(r.message.id, 1)):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=_environment(socket_path),
            capture_output=True,
            text=True,
            check=True,
        )
    assert ran.stdout.splitlines()[-1] == "[]"


def test_timeout_is_exit_6(socket_path: str, stoker: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "TIMEOUT_S", 0.05)
    with ScriptedBroker(socket_path, lambda _: Hang()):
        assert stoker("why", "a").code == 6


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_as_a_shell_expects(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: Hang()) as broker:
        command = [sys.executable, "-m", "stoker.cli.main", "wait", "a"]
        with subprocess.Popen(command, env=_environment(socket_path), stderr=subprocess.PIPE) as process:
            wait_until(lambda: broker.requests, "it waits")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == INTERRUPTED
            assert process.stderr is not None
            assert b"Traceback" not in process.stderr.read()
