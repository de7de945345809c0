"""Real pools in processes of their own, for an app written by the test."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Self

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
    """A supervisor in a process of its own, with a broker for it. Both end with the `with` block."""

    def __init__(
        self,
        directory: Path,
        *,
        app: str = "",
        workers: int = 1,
        drain_s: float = 30,
        stderr: int | None = None,
        refuse_pool: str = "",
    ) -> None:
        """`app` is code that follows that of `APP`. Output goes to a file, or to `stderr`."""
        self.directory = directory
        self.broker = FakeBroker(str(directory / "broker.sock"))
        self.broker.refuse_pool = refuse_pool
        self.broker.start()
        (directory / "tasks.py").write_text(APP + textwrap.dedent(app))
        self.log = directory / "pool.log"
        script = (
            "import sys; from stoker.worker.main import main; "
            f"sys.exit(main('tasks:app', socket={self.broker.path!r}, workers={workers}, name='pool', "
            f"drain_ms={round(drain_s * 1000)}))"
        )
        with self.log.open("ab") as log:
            output = log.fileno() if stderr is None else stderr
            self.process = subprocess.Popen(
                [sys.executable, "-c", script],
                cwd=directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.broker.stop()
        if error is not None:
            print(self.said())

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


def children_of(parent: int, name: str) -> list[int]:
    """Pids of living children by parent and short name."""
    found: list[int] = []
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
