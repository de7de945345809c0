"""Files of what a program said: which are read, and which are none of the job's."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.scripted_broker import Request, ScriptedBroker

from stoker import Client
from stoker.cli.kept import CHUNK_BYTES, KeptFile, kept_files
from stoker.proto.messages import STDERR, STDOUT, Message, StatusReport
from stoker.proto.statefiles import LOCK, OUTPUT

JOB = {"kind": "command", "number": 5, "attempt": 2}
PID = 4711


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A state directory in which job 5 has said something in its second attempt."""
    data = tmp_path / "data"
    (data / OUTPUT).mkdir(parents=True)
    (data / LOCK).write_text(f"{PID}\n")
    (data / OUTPUT / "5-1.stdout").write_bytes(b"first")
    (data / OUTPUT / "5-2.stdout").write_bytes(b"out\n")
    (data / OUTPUT / "5-2.stderr").write_bytes(b"err \x1b]0;owned\x07\nmore")
    return data


def found(socket_path: str, status: Mapping[str, Any], job: Mapping[str, Any] = JOB) -> list[KeptFile]:
    def answers(_: Request) -> Message:
        return StatusReport(dict(status))

    with ScriptedBroker(socket_path, answers), Client(socket_path) as client:
        return kept_files(client, job)


def said(files: list[KeptFile]) -> list[tuple[int, bytes]]:
    return [(file.stream, b"".join(file.chunks())) for file in files]


def test_both_streams_of_the_last_attempt_are_found(socket_path: str, data: Path) -> None:
    files = found(socket_path, {"data": str(data), "pid": PID})
    assert said(files) == [(STDOUT, b"out\n"), (STDERR, b"err \x1b]0;owned\x07\nmore")]


def test_for_a_person_they_are_harmless_lines(socket_path: str, data: Path) -> None:
    out, err = found(socket_path, {"data": str(data), "pid": PID})
    assert list(out.lines()) == [f"stdout of the last attempt, {data}/output/5-2.stdout:", "  out"]
    assert list(err.lines())[1:] == ["  err \\x1b]0;owned\\x07", "  more"]


def test_endless_line_is_broken(socket_path: str, data: Path) -> None:
    (data / OUTPUT / "5-2.stdout").write_bytes(b"x" * (2 * CHUNK_BYTES + 1))
    out, err = found(socket_path, {"data": str(data), "pid": PID})
    err.file.close()
    assert [len(line) for line in list(out.lines())[1:]] == [CHUNK_BYTES + 2, CHUNK_BYTES + 2, 3]


@pytest.mark.parametrize(
    "status",
    [{"pid": PID}, {"data": "/none", "pid": PID}, {"data": 5, "pid": PID}, {"pid": PID + 1}, {"pid": None}],
    ids=["no data", "elsewhere", "nonsense", "another broker", "no pid"],
)
def test_directory_that_is_not_of_this_broker_is_not_read(
    socket_path: str, data: Path, status: dict[str, Any]
) -> None:
    places = {} if status == {"pid": PID} else {"data": str(data)}
    assert found(socket_path, places | status) == []


@pytest.mark.parametrize("job", [JOB | {"kind": "send"}, JOB | {"number": "../5"}, {}], ids=str)
def test_job_that_is_no_program_has_none(socket_path: str, data: Path, job: dict[str, Any]) -> None:
    assert found(socket_path, {"data": str(data), "pid": PID}, job) == []


def test_link_fifo_and_second_name_are_not_read(socket_path: str, data: Path) -> None:
    out, err, precious = data / OUTPUT / "5-2.stdout", data / OUTPUT / "5-2.stderr", data / "precious"
    precious.write_bytes(b"secret")
    out.unlink()
    out.symlink_to(precious)
    err.unlink()
    os.mkfifo(err)
    status = {"data": str(data), "pid": PID}
    assert found(socket_path, status) == []
    out.unlink()
    out.hardlink_to(precious)
    assert found(socket_path, status) == []
