"""Where commands look for the broker: the flag, the environment, then the settings file."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.scripted_broker import ScriptedBroker

from stoker.cli.main import run
from stoker.cli.options import of_file
from stoker.proto import messages

Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    path = tmp_path / "stoker.toml"
    monkeypatch.setenv("STOKER_CONFIG", str(path))
    monkeypatch.delenv("STOKER_SOCKET", raising=False)

    def write(text: str) -> None:
        path.write_text(text)

    return write


def test_client_command_goes_where_the_file_says(
    write: Write, socket_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f'[broker]\nsocket = "{socket_path}"\n')
    with ScriptedBroker(socket_path, lambda _: messages.Because("a", "ready", ["paused"])):
        assert run(["why", "a"]) == 0
    assert "paused" in capsys.readouterr().out


def test_environment_wins_over_the_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[broker]\nsocket = "/of/the/file"\n')
    assert of_file("socket") == "/of/the/file"
    monkeypatch.setenv("STOKER_SOCKET", "/of/the/environment")
    assert of_file("socket") is None


def test_file_that_says_nothing_of_it_changes_nothing(write: Write) -> None:
    write("[pool]\nworkers = 0\n")
    assert of_file("data") is None


def test_file_that_cannot_be_read_is_exit_78(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("[broker\n")
    assert run(["status"]) == 78
    assert "not TOML" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_file_a_command_loads_nothing_to_read_one() -> None:
    script = (
        "import sys, stoker.cli.options as options; options.of_file('socket');"
        "print({'tomllib', 'attr', 'stoker.config.sources'} & set(sys.modules))"
    )
    environment = {"HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "set()\n"
