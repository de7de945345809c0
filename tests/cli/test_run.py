"""`stoker run`: a program and its surroundings become the arguments of a job."""

import io
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support.command_line import CommandLine, enqueued

from stoker.client.values import decode_value
from stoker.proto import messages


def sent(
    socket_path: str, stoker: CommandLine, *arguments: str
) -> tuple[messages.Enqueue, list[str], dict[str, Any]]:
    message = enqueued(socket_path, stoker, "run", *arguments)
    (argv,), kwargs = decode_value(message.payload)
    return message, argv, kwargs


def test_program_runs_here_with_this_umask_and_is_tried_once(
    socket_path: str, stoker: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    try:
        message, argv, kwargs = sent(socket_path, stoker, "gzip", "-9", "a b")
    finally:
        os.umask(before)
    assert (message.kind, message.attempts_max, argv) == ("command", 1, ["gzip", "-9", "a b"])
    assert kwargs == {"directory": str(tmp_path), "umask": 0o027}


def test_two_dashes_end_the_options(socket_path: str, stoker: CommandLine) -> None:
    message, argv, _ = sent(socket_path, stoker, "--time-limit", "30s", "--", "--odd", "--time-limit", "1s")
    assert (message.time_limit_ms, argv) == (30_000, ["--odd", "--time-limit", "1s"])


def test_every_option_has_its_field(socket_path: str, stoker: CommandLine) -> None:
    options = (
        "--directory /tmp --env A=b=c --env D= --pass-env SECRET --pass-env TOKEN --stdin /etc/motd "
        "--limit memory_bytes=512MiB --limit cpu_s=60 --ok 0,3 --retry 4 --permanent 5,6 --stdout-max 1MiB "
        "--stderr-max 10 --keep-output 10MiB --grace 500ms --id a --queue q --attempts-max 3"
    )
    message, argv, kwargs = sent(socket_path, stoker, *options.split(), "true")
    assert (message.id, message.queue, message.attempts_max, argv) == ("a", "q", 3, ["true"])
    del kwargs["umask"]
    assert kwargs == {
        "directory": "/tmp",
        "env": {"A": "b=c", "D": ""},
        "pass_env": ["SECRET", "TOKEN"],
        "stdin_file": "/etc/motd",
        "rlimits": {"memory_bytes": 512 * 1024 * 1024, "cpu_s": 60},
        "ok": [0, 3],
        "retry": [4],
        "permanent": [5, 6],
        "stdout_bytes_max": 1024 * 1024,
        "stderr_bytes_max": 10,
        "keep_output_bytes": 10 * 1024 * 1024,
        "grace_s": 0.5,
    }


def test_stdin_travels_with_the_job(
    socket_path: str, stoker: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"\xff\x00 bytes")))
    _, _, kwargs = sent(socket_path, stoker, "--stdin", "-", "cat")
    assert kwargs["stdin"] == b"\xff\x00 bytes"


def test_paths_are_those_of_whoever_runs_it(
    socket_path: str, stoker: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, _, kwargs = sent(socket_path, stoker, "--directory", "below", "--stdin", "given", "cat")
    assert (kwargs["directory"], kwargs["stdin_file"]) == (f"{tmp_path}/below", f"{tmp_path}/given")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        ([""], "no program is named"),
        (["--env", "A", "true"], "is not like NAME=VALUE"),
        (["--env", "=b", "true"], "is not like NAME=VALUE"),
        (["--ok", "x", "true"], "is not a list of exit statuses"),
        (["--ok", "256", "true"], "is not a list of exit statuses"),
        (["--retry", "", "true"], "is not a list of exit statuses"),
        (["--limit", "cpu_s=1h", "true"], "is not like memory_bytes=512MiB"),
        (["--limit", "memory=1", "true"], "no limit is called 'memory'"),
        (["--stdout-max", "0", "true"], "is not"),
        (["--keep-output", "1023", "true"], "is not"),
        (["--at", "2030-01-01", "--delay", "1s", "true"], "Give either --at or --delay"),
        (["--nonsense", "true"], "No such option"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_sent(
    stoker: CommandLine, arguments: list[str], says: str
) -> None:
    ran = stoker("run", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""
