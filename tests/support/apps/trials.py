"""Handlers for the integration tests: each leaves marks in a file, so that runs can be counted outside."""

import ctypes
import os
import signal
import time

from stoker import App, current_job

app = App()


def mark(path: str, what: str) -> None:
    """Append one line: what, job id, attempt, pid, monotonic time. One write, so lines never mix."""
    job = current_job()
    line = f"{what} {job.id} {job.attempt} {os.getpid()} {time.monotonic():.6f}\n"
    with open(path, "ab", buffering=0) as file:
        file.write(line.encode())


@app.job()
def noop() -> None:
    """Nothing at all."""


@app.job()
def nap(ms: int) -> None:
    """Take so long."""
    time.sleep(ms / 1000)


@app.job()
def run(path: str, seconds: float) -> int:
    """Mark start and end, sleep between them."""
    mark(path, "start")
    time.sleep(seconds)
    mark(path, "end")
    return os.getpid()


@app.job(lease_s=2)
def hold_lock(path: str, seconds: int) -> None:
    """Keep the interpreter lock: no other Python code of this process gets a turn."""
    mark(path, "start")
    ctypes.PyDLL(None).sleep(seconds)
    mark(path, "end")


@app.job(crashes_max=3, backoff_s=0.2)
def suicide(path: str) -> None:
    """Kill the worker, first thing."""
    mark(path, "start")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(time_limit_s=0.5, attempts_max=1)
def swallow(path: str, seconds: float) -> None:
    """Catch whatever is raised, go on until the time is over."""
    mark(path, "start")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except BaseException:  # noqa: BLE001 - swallowing everything is what it is for
            mark(path, "caught")


@app.job(attempts_max=2, backoff_s=0.1)
def fail(path: str) -> None:
    """Fail."""
    mark(path, "start")
    raise RuntimeError("on purpose")


@app.job(attempts_max=1)
def leave(how: str) -> None:
    """End in an odd way."""
    if how == "exit":
        raise SystemExit("leaving")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "memory":
        raise MemoryError
    os._exit(0)


@app.job(time_limit_s=0.5, attempts_max=1)
def become_sleep() -> None:
    """Turn the worker into another program."""
    os.execvp("sleep", ["sleep", "60"])
