"""`stoker up` with the real broker and the real pool: from the command to the result, and down again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
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

@app.job()
def endless(path):
    open(path, "w").close()
    time.sleep(600)
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

    def said(self) -> str:
        return (self.directory / "log").read_text()

    def code(self) -> str:
        """Which code the pool says it serves."""
        return str(json.loads(self.stoker("status", "--json").stdout)["pools"][0]["code"])

    @contextmanager
    def up(self, app: str = "tasks:app", *flags: str) -> Generator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "stoker.cli.main", "up", app, "--workers", "1", *flags]
        with (
            open(self.directory / "log", "wb") as log,
            subprocess.Popen(command, env=self.environment, cwd=self.directory, stderr=log) as process,
        ):
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


def test_orderly_end_is_told_as_one(host: Host) -> None:
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "pool_left pool=tasks:app" in host.said()
    accidents = ("disconnected", "supervisor_died", "zygote_died", "was killed", "ended with")
    assert [line for line in host.said().splitlines() if any(word in line for word in accidents)] == []


def test_changed_file_is_loaded_by_up_reload(host: Host) -> None:
    with host.up("tasks:app", "--reload"):
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        (host.directory / "tasks.py").write_text(TASKS.replace("a + b", "a * b + 100"))
        wait_until(lambda: host.code().startswith("2-"), "the new code serves", deadline_s=30)
        id = host.stoker("enqueue", "add", "--args", "[3, 4]").stdout.strip()
        assert host.stoker("wait", id, "--timeout", "30s").stdout == "112\n"


def test_hup_to_up_loads_the_code_anew(host: Host) -> None:
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: host.code().startswith("2-"), "the new code serves", deadline_s=30)
        process.terminate()
        assert process.wait(60) == 0


def test_app_that_does_not_import_is_exit_69(host: Host) -> None:
    with host.up("nowhere:app") as process:
        assert process.wait(60) == 69
    assert f"modules are looked up in {host.directory}," in host.said()
    assert "Traceback" not in host.said()
    assert "zygote" not in host.said()


@pytest.mark.parametrize("flags", [(), ("--data", "elsewhere")])
def test_up_beside_a_running_broker_starts_no_pool_and_says_what_does(
    host: Host, flags: tuple[str, ...]
) -> None:
    with host.up():
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        ran = host.stoker("up", "tasks:app", *flags)
        assert ran.returncode == 71
        assert "`stoker pool tasks:app` adds workers to the one that runs" in ran.stderr
        assert "Ctrl-C ends them" not in ran.stderr
        assert len(json.loads(host.stoker("status", "--json").stdout)["pools"]) == 1


def test_second_ctrl_c_within_a_second_hurries(host: Host) -> None:
    started = host.directory / "started"
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        host.stoker("enqueue", "endless", "--id", "last", "--args", json.dumps([str(started)]))
        wait_until(started.exists, "the job runs", deadline_s=30)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "drain_begins" in host.said(), "it drains")
        wait_until(lambda: time.time() > _said_at(host, "drain_begins") + 0.35, "it is no copy")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert "hurrying" in host.said()
    assert _said_at(host, "drain_hurried") - _said_at(host, "drain_begins") < 1.5


def _said_at(host: Host, event: str) -> float:
    line = next(line for line in host.said().splitlines() if event in line)
    return datetime.fromisoformat(line.split()[0]).timestamp()


FILE = """
[broker]
socket = "{socket}"
[queues.default]
jobs_max = 1
[pool]
name = "shop"
workers = 2
drain = "10s"
"""


def test_settings_file_reaches_broker_and_pool_and_commands_find_them(host: Host) -> None:
    (host.directory / "stoker.toml").write_text(FILE.format(socket=host.environment.pop("STOKER_SOCKET")))
    host.environment["STOKER_CONFIG"] = "stoker.toml"
    command = [sys.executable, "-m", "stoker.cli.main", "up", "tasks:app", "--workers", "1"]
    with subprocess.Popen(
        command, env=host.environment, cwd=host.directory, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(host.has_pool, "the pool is there", deadline_s=30)
            report = json.loads(host.stoker("status", "--json").stdout)
            assert [(pool["name"], pool["workers"]) for pool in report["pools"]] == [("shop", 1)]
            host.stoker("enqueue", "nobody-knows", "--id", "a")
            assert "queue_full" in host.stoker("enqueue", "nobody-knows", "--id", "b").stderr
        finally:
            process.kill()


def test_file_that_turns_wrong_ends_everything_with_78(host: Host) -> None:
    path = host.directory / "stoker.toml"
    path.write_text("[pool]\nworkers = 1\n")
    host.environment["STOKER_CONFIG"] = str(path)
    with host.up() as process:
        wait_until(host.has_pool, "the pool is there", deadline_s=30)
        path.write_text("[pool]\nworkers = 0\n")
        broker = json.loads(host.stoker("status", "--json").stdout)["pid"]
        os.kill(broker, signal.SIGKILL)
        assert process.wait(60) == 78
