"""`stoker decode`: reads a file or stdin, shows payloads only when asked."""

import io
import socket
import sys
import types
from pathlib import Path

import pytest

from stoker.cli.main import run
from stoker.client.session import Session
from stoker.proto import messages

EVIL = b"secret \x1b[2J"


def recorded() -> bytes:
    session = Session()
    frames = [session.request(messages.Enqueue("a", "resize", EVIL)), session.request(messages.Status())]
    return b"".join(data for _, data in frames)


def test_frames_of_a_file_become_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stream"
    path.write_bytes(recorded())
    assert run(["decode", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["enqueue" in lines[0], "status" in lines[1]] == [True, True]
    assert not any("secret" in line for line in lines)


def test_payloads_are_shown_escaped_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stream"
    path.write_bytes(recorded())
    assert run(["decode", "--payloads", str(path)]) == 0
    out = capsys.readouterr().out
    assert "secret" in out
    assert "\x1b" not in out


def test_stdin_is_read_without_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(recorded())))
    assert run(["decode"]) == 0
    assert "resize" in capsys.readouterr().out


def test_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decode", "/nowhere/at/all"]) == 2
    said = capsys.readouterr().err
    assert "'/nowhere/at/all' does not exist" in said
    assert said.count("\n") == 1


def test_what_is_no_recording_is_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "noise"
    path.write_bytes(recorded() + b"\xff" * 100)
    assert run(["decode", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert ["enqueue" in lines[0], "nothing after this can be read" in lines[2]] == [True, True]


def test_socket_is_no_recording(socket_path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(socket_path)
        assert run(["decode", socket_path]) == 2
    assert f"{socket_path} is a socket and no recording" in capsys.readouterr().err
