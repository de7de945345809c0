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
        memory_max: int = 0,
        recycling: tuple[int, int, int] = (0, 0, 0),
        watch: bool = False,
        prefetch: int = 0,
    ) -> None:
        """`app` is code that follows that of `APP`. Output goes to a file, or to `stderr`."""
        self.directory = directory
        self.broker = FakeBroker(str(directory / "broker.sock"))
        self.broker.refuse_pool = refuse_pool
        self.broker.start()
        self._revisions = 0
        self.rewrite(app)
        self.log = directory / "pool.log"
        script = (
            "import sys; from stoker.worker.main import main; from stoker.worker.recycling import Recycling; "
            f"sys.exit(main('tasks:app', socket={self.broker.path!r}, workers={workers}, name='pool', "
            f"drain_ms={round(drain_s * 1000)}, memory_max={memory_max}, "
            f"recycling=Recycling(*{recycling}), watch={watch}, prefetch={prefetch}))"
        )
        with self.log.open("ab") as log:
            output = log.fileno() if stderr is None else stderr
            self.process = subprocess.Popen(
                [sys.executable, "-c", script],
                cwd=directory,
                env={**os.environ, "PWD": str(directory)},
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

    def rewrite(self, app: str, *, name: str = "tasks") -> None:
        """Put other code in place of that which follows `APP`, or into a module of another name."""
        path = self.directory / f"{name}.py"
        path.write_text((APP if name == "tasks" else "") + textwrap.dedent(app))
        # Python tells changed files by the second and the size; tests write faster than that.
        self._revisions += 1
        at_s = path.stat().st_mtime + self._revisions
        os.utime(path, (at_s, at_s))

    def reload(self) -> None:
        """HUP."""
        self.process.send_signal(signal.SIGHUP)

    def last_reload(self) -> tuple[str | None, str]:
        """State of the last reload and its error, as the broker was told."""
        told = self.broker.all_of("pool")[-1]
        return told.reload_state, told.reload_error

    def wait_reloaded(self, state: str, *, deadline_s: float = 20) -> str:
        """Wait until the last reload has come to this state; its error."""
        wait_until(lambda: self.last_reload()[0] == state, f"a reload that is {state}", deadline_s=deadline_s)
        return self.last_reload()[1]

    def zygotes(self) -> list[int]:
        """Pids of all of them."""
        return children_of(self.pid, "stoker-zygote")

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
