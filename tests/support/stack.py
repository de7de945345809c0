"""A real stoker for a test: broker and pool as separate processes in a private directory.

Processes are started here, signalled only by the pid of what was started here, and gone at the end.
Logs go to files in the directory and are shown when a test fails to see what it waits for.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.paths import python_path
from support.waiting import wait_until

from stoker import Client
from stoker.proto.errors import StokerError

TESTS = Path(__file__).parents[1]
APPS = TESTS / "support" / "apps"
START_S = 20.0


STOKER = "stoker.cli.main:main"


class Stack:
    """Use as a context manager; `start_broker` and `start_pool` as the test needs them."""

    broker_call = STOKER
    """`module:function` that is called as the broker, with its arguments in `sys.argv`. It may be a broken one."""

    broker_environment: Mapping[str, str] = {}
    """Variables for the broker alone."""

    pool_environment: Mapping[str, str] = {}
    """The same for pools."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "broker.sock")
        self.data = directory / "data"
        self.client = Client(self.socket)
        self.broker: subprocess.Popen[bytes] | None = None
        self.pool: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        for process in (self.pool, self.broker):
            self._stop(process)
        if error is not None:
            for log in sorted(self.directory.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}", file=sys.stderr)

    @staticmethod
    def _stop(process: subprocess.Popen[bytes] | None) -> None:
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def _spawn(
        self, name: str, *arguments: str, call: str = STOKER, **environment: str
    ) -> subprocess.Popen[bytes]:
        program = ["-m", "stoker.cli.main"] if call == STOKER else ["-c", _script(call)]
        with open(self.directory / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, *program, *arguments],
                cwd=APPS,
                env=os.environ | {"PYTHONPATH": python_path()} | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_broker(self, *options: str, wait: bool = True, within_s: float = START_S) -> None:
        """Start the broker and wait until it answers."""
        arguments = ("broker", "--socket", self.socket, "--data", str(self.data), *options)
        self.broker = self._spawn("broker", *arguments, call=self.broker_call, **self.broker_environment)
        if wait:
            wait_until(self._answers, "the broker answers", deadline_s=within_s)

    def _answers(self) -> bool:
        assert self.broker is not None
        assert self.broker.poll() is None, f"the broker ended with {self.broker.returncode}"
        try:
            return bool(self.client.status())
        except StokerError:
            return False

    def start_pool(self, app: str, workers: int, *options: str, **environment: str) -> None:
        """Start a pool and wait until all its workers are idle."""
        places = ("--socket", self.socket, "--data", str(self.data))
        arguments = ("pool", app, "--workers", str(workers), *places, *options)
        self.pool = self._spawn("pool", *arguments, **self.pool_environment, **environment)
        wait_until(lambda: self.idle_count() >= workers, f"{workers} idle workers", deadline_s=START_S)

    def kill_broker(self) -> None:
        """SIGKILL, and reaped."""
        assert self.broker is not None
        self.broker.send_signal(signal.SIGKILL)
        self.broker.wait(10)

    def workers(self) -> list[dict[str, Any]]:
        """The workers as `status` shows them."""
        return list(self.client.status()["workers"])

    def idle_count(self) -> int:
        """Workers that are connected and hold nothing."""
        return sum(worker["state"] == "idle" for worker in self.workers())

    def holder_pid(self, job_id: str) -> int:
        """The pid of the worker that holds a job; 0 if none does."""
        return next((worker["pid"] for worker in self.workers() if job_id in worker["jobs"]), 0)

    def command_worker(self) -> int:
        """The pid of the worker that runs programs; 0 while it is not up."""
        return next((worker["pid"] for worker in self.workers() if worker["slots"] == 100), 0)

    def queue(self, name: str = "default") -> dict[str, Any]:
        """One queue's numbers, empty if it is not known."""
        return dict(self.client.status()["queues"].get(name, {}))


def _script(call: str) -> str:
    module, _, function = call.partition(":")
    return f"import sys; sys.path.append({str(TESTS)!r}); from {module} import {function}; {function}()"
