"""New code and fresh workers under load, with real broker, pool and command: nothing is lost or held up.

`--rounds 200` makes it 1,000 jobs a second; by default it is 100, for any machine.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgpack
import pytest
from support.paths import python_path
from support.pools import children_of
from support.stack import Stack
from support.waiting import wait_until

from stoker import Client, JobHandle, JobSpec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

APP = """
import os, time
from stoker import App

app = App()
VERSION = {version}


@app.job
def version():
    return VERSION


@app.job
def slow(path, seconds):
    open(path, "w").close()
    time.sleep(seconds)
    return VERSION


@app.job
async def own_pid():
    return os.getpid()
"""
BROKEN = "raise RuntimeError('this code does not import')\n"

LATE_MS = 1000
"""No job may start so long after it was enqueued."""


class Deployed:
    """A stack whose pool runs an app that the test can replace."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self._releases = 0

    def write(self, text: str) -> None:
        """Put other code in place, whole, as a deployment does."""
        self._releases += 1
        path = self.stack.directory / "release.py"
        fresh = path.with_suffix(".fresh")
        fresh.write_text(text)
        # Python tells changed files by the second and the size.
        at_s = time.time() - 1000 + self._releases
        os.utime(fresh, (at_s, at_s))
        os.replace(fresh, path)

    def start(self, workers: int = 2, **settings: str) -> None:
        environment = {f"STOKER_POOL_{key.upper()}": value for key, value in settings.items()}
        self.stack.start_pool(
            "release:app", workers, PYTHONPATH=python_path(self.stack.directory), **environment
        )

    def reload(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command."""
        command = [
            sys.executable,
            "-m",
            "stoker.cli.main",
            "reload",
            "--socket",
            self.stack.socket,
            *arguments,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    def is_at_ease(self, jobs_per_s: int) -> bool:
        """The last reload is over, and no more jobs wait than come in a twentieth of a second."""
        return len(_zygotes(self)) == 1 and self.stack.queue().get("ready", 0) <= jobs_per_s / 20

    def pool(self) -> dict[str, Any]:
        """Its entry in `status`."""
        return dict(self.stack.client.status()["pools"][0])


@pytest.fixture
def deployed(short_directory: Path) -> Iterator[Deployed]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        deployed = Deployed(stack)
        deployed.write(APP.format(version=0))
        yield deployed


@pytest.fixture
def jobs_per_s(request: pytest.FixtureRequest) -> int:
    rounds = request.config.getoption("--rounds")
    assert isinstance(rounds, int)
    return min(1000, 10 * rounds if rounds <= 10 else 5 * rounds)


class Load:
    """Jobs at a steady rate, from a thread, while the block runs."""

    def __init__(self, socket: str, jobs_per_s: int) -> None:
        self.handles: list[JobHandle] = []
        self._client = Client(socket)
        self._jobs_per_s = jobs_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()

    def _produce(self) -> None:
        begun = time.monotonic()
        while not self._stop.wait(0.02):
            due = round((time.monotonic() - begun) * self._jobs_per_s) - len(self.handles)
            self.handles += self._client.enqueue_many(JobSpec("version") for _ in range(due))


def ends_of(client: Client, handles: list[JobHandle]) -> list[dict[str, Any]]:
    """Every job as `show` has it, once all of them are finished."""
    shown: list[dict[str, Any]] = []
    for handle in handles:
        handle.wait(timeout_s=60)
        shown.append(dict(client.show(handle.id)))
    return shown


def assert_undisturbed(jobs: list[dict[str, Any]]) -> None:
    """Each ran once, was charged nothing, and did not wait."""
    assert {job["state"] for job in jobs} == {"done"}
    assert {(job["attempt"], job["charged"], len(job["history"])) for job in jobs} == {(1, 0, 1)}
    waits = sorted(job["history"][0]["started_at_ms"] - job["created_at_ms"] for job in jobs)
    print(f"{len(jobs)} jobs waited {waits[len(waits) // 2]} ms (median), {waits[-1]} ms (worst)")
    assert waits[-1] < LATE_MS


def test_ten_reloads_under_load_cost_no_job_anything(deployed: Deployed, jobs_per_s: int) -> None:
    deployed.start(workers=8)
    with Load(deployed.stack.socket, jobs_per_s) as load:
        for number in range(1, 11):
            wait_until(lambda: deployed.is_at_ease(jobs_per_s), "the load is carried", deadline_s=30)
            is_broken = number in (4, 7)
            deployed.write(BROKEN if is_broken else APP.format(version=number))
            ran = deployed.reload()
            assert ran.returncode == (1 if is_broken else 0), ran.stderr
            assert ("this code does not import" in ran.stderr) is is_broken
    jobs = ends_of(deployed.stack.client, load.handles)
    assert_undisturbed(jobs)
    ran_by = {(job["history"][0]["code"], msgpack.unpackb(job["result"])) for job in jobs}
    # Every code that served, each with the version that it says it is: no other, and none twice.
    assert sorted(version for _, version in ran_by) == [0, 1, 2, 3, 5, 6, 8, 9, 10]
    assert len({code for code, _ in ran_by}) == len(ran_by)


def test_recycling_under_load_costs_no_job_anything(deployed: Deployed, jobs_per_s: int) -> None:
    deployed.start(workers=1, recycle_jobs="50")
    # There is one worker, and each of its jobs is a round trip.
    with Load(deployed.stack.socket, max(jobs_per_s // 5, 50)) as load:
        log = deployed.stack.directory / "pool.log"
        wait_until(lambda: log.read_text().count("worker_recycled") >= 4, "four workers", deadline_s=60)
    jobs = ends_of(deployed.stack.client, load.handles)
    assert_undisturbed(jobs)
    assert len({job["history"][0]["worker"] for job in jobs}) >= 4


def test_job_that_runs_through_a_reload_and_two_kills_runs_once(deployed: Deployed) -> None:
    deployed.start(workers=1)
    began = deployed.stack.directory / "began"
    job = deployed.stack.client.enqueue("slow", [str(began), 4.0])
    wait_until(began.exists, "the job runs")
    deployed.write("import time; time.sleep(600)\n")
    assert deployed.stack.pool is not None
    deployed.stack.pool.send_signal(signal.SIGHUP)
    zygotes = wait_until(lambda: _zygotes(deployed)[1:] and _zygotes(deployed), "a second zygote")
    os.kill(max(zygotes), signal.SIGKILL)
    wait_until(lambda: "'state': 'failed'" in str(deployed.pool()["reload"]), "the reload failed")
    deployed.stack.kill_broker()
    deployed.stack.start_broker()
    assert job.wait(timeout_s=30).state == "done"
    assert [row["outcome"] for row in deployed.stack.client.show(job.id)["history"]] == ["ok"]
    # The next broker knows as well.
    assert deployed.pool()["reload"]["state"] == "failed"


def _zygotes(deployed: Deployed) -> list[int]:
    assert deployed.stack.pool is not None
    return sorted(children_of(deployed.stack.pool.pid, "stoker-zygote"))


def test_coroutine_workers_are_recycled_as_well(deployed: Deployed) -> None:
    deployed.start(workers=1, recycle_age="1s")
    first = deployed.stack.client.enqueue("own_pid").wait(timeout_s=20).result
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "the worn worker has ended", deadline_s=20)
    assert deployed.stack.client.enqueue("own_pid").wait(timeout_s=20).result != first


def test_reload_of_a_pool_of_another_name_touches_nothing(deployed: Deployed) -> None:
    deployed.start(workers=1)
    before = deployed.pool()["code"]
    ran = deployed.reload("--pool", "nosuch")
    assert (ran.returncode, "no pool of that name" in ran.stderr) == (3, True)
    assert deployed.reload("--pool", "release:app").stdout.startswith("release:app 2-")
    assert deployed.pool()["code"] != before


def test_command_waits_for_a_long_import_only_as_long_as_it_is_told(deployed: Deployed) -> None:
    deployed.start(workers=1)
    deployed.write("import time; time.sleep(600)\n")
    ran = deployed.reload("--timeout", "500ms")
    assert (ran.returncode, "not done yet" in ran.stderr) == (6, True)
    deployed.write(APP.format(version=11))
    assert deployed.reload().returncode == 0
    assert deployed.stack.client.enqueue("version").wait(timeout_s=20).result == 11
