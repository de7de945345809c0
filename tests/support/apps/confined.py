"""Handlers that take too much, die, and change what is around them."""

import ctypes
import os

from stoker import App, DeadJob, current_job

app = App()
MIB = 1024 * 1024


@app.job
def take_without_end() -> None:
    """Until the pool's limit."""
    taken: list[bytearray] = []
    while True:
        taken.append(bytearray(MIB))


@app.job(isolate=True, attempts_max=1)
def crash() -> None:
    """A null pointer."""
    ctypes.string_at(0)


@app.job
def pid() -> int:
    """Of the worker."""
    return os.getpid()


@app.job(crashes_max=2, attempts_max=9)
def crash_worker() -> None:
    """Takes its worker with it."""
    os.kill(os.getpid(), 9)


@app.on_dead
def write_down(job: DeadJob) -> None:
    """Fails the first time, so that it must be told again."""
    if current_job().attempt == 1:
        raise ConnectionError("nobody listens")
    with open(os.environ["DEATHS"], "a", encoding="utf-8") as file:
        file.write(f"{job.id} {job.outcome} {job.attempt}\n")


@app.job
def pass_on() -> str:
    """Enqueue over the app's own client, from the worker."""
    return pid.enqueue().id


@app.job(isolate=True)
def pass_on_isolated() -> str:
    """The same from a process that has inherited that client."""
    return pid.enqueue().id
