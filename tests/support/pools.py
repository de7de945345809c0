"""Real pools in processes of their own, for an app written by the test."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from support.fake_broker import FakeBroker
from support.waiting import wait_until

APP = """
import ctypes, os, signal, sys, time
from stoker import App, Permanent, Retry, current_job

app = App()


@app.job
def add(a, b):
    return a + b


@app.job
def pid():
    return os.getpid()


@app.job
def sleep(seconds):
    time.sleep(seconds)
    return "slept"


@app.job
def kill_self(number):
    os.kill(os.getpid(), number)


@app.job
def touch_and_sleep(path, seconds):
    open(path, "w").close()
    time.sleep(seconds)
    return "slept"
"""


class RunningPool:
    """A supervisor in a process of its own. `stderr` is a file that grows."""

    def __init__(
        self,
        broker: FakeBroker,
        directory: Path,
        *,
        app: str = "",
        workers: int = 1,
        drain_s: float = 30,
        base: str = APP,
    ) -> None:
        (directory / "tasks.py").write_text(base + textwrap.dedent(app))
        self.log = directory / "pool.log"
        script = (
            "import sys; from stoker.worker.main import main; "
            f"sys.exit(main('tasks:app', socket={broker.path!r}, workers={workers}, name='pool', "
            f"drain_ms={round(drain_s * 1000)}))"
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], cwd=directory, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_said(self, text: str, *, deadline_s: float = 10) -> None:
        wait_until(lambda: text in self.said(), f"log line {text!r}", deadline_s=deadline_s)

    def zygote_pid(self) -> int:
        """Of the child of the supervisor that says so by its name."""
        return wait_until(lambda: next(iter(children_of(self.pid, "stoker-zygote")), 0), "a zygote")

    def terminate(self) -> int:
        """TERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def children_of(parent: int, name: str) -> list[int]:
    """Pids of living children by parent and short name."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            text = Path(f"/proc/{entry}/stat").read_text() if entry.isdigit() else ""
        except OSError:
            continue
        if text:
            comm = text[text.index("(") + 1 : text.rindex(")")]
            fields = text[text.rindex(")") + 2 :].split()
            if comm == name and int(fields[1]) == parent and fields[0] not in "ZX":
                found.append(int(entry))
    return found


def is_alive(pid: int) -> bool:
    """It exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"
