"""Commands that may have few files open: one line that says what to do, or all they need."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.listening import listens
from support.stack import APPS, Stack
from support.waiting import wait_until

from stoker.cli.descriptors import ensure, for_pool, require
from stoker.config.exits import Exit
from stoker.config.mistakes import SettingError
from stoker.proto import limits

POOL = ["--workers", "1", "--async-workers", "1"]
COMMANDS = {
    "broker": ["broker"],
    "pool": ["pool", "failing:app", *POOL],
    "up": ["up", "failing:app", *POOL],
}
LEAST = {
    "broker": limits.BROKER_DESCRIPTORS_MIN,
    "pool": for_pool(1, 1),
    "up": limits.BROKER_DESCRIPTORS_MIN,
}
INTERPRETER = 8
"""With fewer, Python itself may not come up."""


def limited(files: int, *arguments: str) -> list[str]:
    """The command line of a stoker whose hard limit of open files that is."""
    shell = f'ulimit -n {files} && exec "$@"'
    return ["sh", "-c", shell, "sh", sys.executable, "-m", "stoker.cli.main", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_too_few_are_told_on_one_line_with_what_to_do(short_directory: Path, name: str) -> None:
    paths = ["--socket", str(short_directory / "s")]
    paths += ["--data", str(short_directory / "data")] if name != "pool" else []
    for files in (INTERPRETER, limits.DESCRIPTORS_MIN - 1, limits.DESCRIPTORS_MIN, LEAST[name] - 1):
        ran = subprocess.run(
            limited(files, *COMMANDS[name], *paths), check=False, capture_output=True, text=True, cwd=APPS
        )
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (Exit.CONFIG, "", 1)
        assert f"limit of open files is {files}, and " in ran.stderr and "ulimit -n" in ran.stderr
    assert list(short_directory.iterdir()) == []


@pytest.mark.slow
def test_client_needs_few(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        command = limited(limits.DESCRIPTORS_MIN, "status", "--socket", stack.socket)
        assert subprocess.run(command, check=False, capture_output=True).returncode == Exit.OK


@pytest.mark.slow
def test_least_is_enough_for_everything_and_a_reload(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        paths = ["--socket", stack.socket, "--data", str(stack.data)]
        with open(short_directory / "up.log", "wb") as log:
            up = subprocess.Popen(
                limited(LEAST["up"], *COMMANDS["up"], *paths), stdout=log, stderr=log, cwd=APPS
            )
        try:
            wait_until(lambda: listens(stack.socket), "the broker listens")
            wait_until(stack.idle_count, "an idle worker")
            command = [sys.executable, "-m", "stoker.cli.main", "reload", "--socket", stack.socket]
            assert subprocess.run(command, check=False).returncode == Exit.OK
        finally:
            up.terminate()
            up.wait(30)
    assert up.returncode == Exit.OK


def test_soft_limit_is_raised_as_far_as_needed() -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        ensure(soft, "this test")
        ensure(soft - 5, "this test")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_hard_limit_is_what_cannot_be_raised() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    require(hard, "this test")
    with pytest.raises(SettingError, match=f"is {hard}, and this test needs {hard + 1}; .*, or fewer"):
        require(hard + 1, "this test", instead=", or fewer")
