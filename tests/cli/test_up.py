"""`stoker up` with the real broker and the real pool: from the command to the result, and down again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import wait_until

pytestmark = pytest.mark.slow

TASKS = """
import time
from stoker import App
app = App()

@app.job()
def add(a, b):
    return a + b

@app.job()
def slow(path):
    open(path, "w").close()
    time.sleep(0.5)
    return "finished"
"""


class Host:
    """A directory with an app, and the command line used in it."""

    def __init__(self, directory: Path) -> None:
        (directory / "tasks.py").write_text(TASKS)
        self.directory = directory
        self.environment = {
            **os.environ,
            "STOKER_SOCKET": str(directory / "b.sock"),
            "STOKER_DATA": str(directory / "data"),
        }

    def stoker(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stoker.cli.main", *arguments],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def has_pool(self) -> bool:
        ran = self.stoker("status", "--json")
        return ran.returncode == 0 and bool(json.loads(ran.stdout).get("workers"))

    @contextmanager
    def up(self, app: str = "tasks:app") -> Generator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "stoker.cli.main", "up", app, "--workers", "1"]
        with subprocess.Popen(
            command, env=self.environment, cwd=self.directory, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield process
            finally:
                # Broker and pool end with it, however it ends.
                process.kill()


@pytest.fixture
def host(short_directory: Path) -> Host:
    return Host(short_directory)


def test_job_from_the_command_line_runs_and_its_result_is_printed(host: Host) -> None:
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        id = host.stoker("enqueue", "add", "--args", "[1, 2]").stdout.strip()
        ran = host.stoker("wait", id, "--timeout", "30s")
        assert (ran.returncode, ran.stdout) == (0, "3\n")
        process.terminate()
        assert process.wait(60) == 0
    assert host.stoker("status").returncode == 5


def test_running_job_is_finished_before_the_end(host: Host) -> None:
    started = host.directory / "started"
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        host.stoker("enqueue", "slow", "--id", "last", "--args", json.dumps([str(started)]))
        wait_until(started.exists, "the job runs", deadline_s=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    with host.up():
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        ran = host.stoker("show", "last", "--json")
        assert [row["outcome"] for row in json.loads(ran.stdout)["history"]] == ["ok"]


def test_app_that_does_not_import_is_exit_69(host: Host) -> None:
    with host.up("nowhere:app") as process:
        assert process.wait(60) == 69
