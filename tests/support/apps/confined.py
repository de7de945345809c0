"""Handlers that take too much, die, and change what is around them."""

import ctypes
import os
import threading

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


@app.job
def mib_to_be_had(in_threads: int) -> int:
    """How much small memory there is to be had, by so many threads together; 0: by the main thread."""
    kept: list[list[bytes]] = []
    all_run = threading.Barrier(max(in_threads, 1))

    def take() -> None:
        taken: list[bytes] = []
        kept.append(taken)
        # A thread needs memory too: nobody takes any before all have theirs.
        all_run.wait()
        try:
            while True:
                taken.append(b"x" * (100 * 1024))
        except MemoryError:
            return

    threads = [threading.Thread(target=take) for _ in range(in_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not threads:
        take()
    return sum(map(len, kept)) * 100 // 1024
