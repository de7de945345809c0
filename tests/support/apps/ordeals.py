"""Handlers that are hard on whoever watches over them."""

import os
import signal

from stoker import App, current_job

app = App()


@app.job(lease_s=1, backoff_s=0.1, crashes_max=5)
def stop_itself(marks: str) -> int:
    """The first attempt stops its own process; the second says that it was the second."""
    job = current_job()
    with open(marks, "a", encoding="ascii") as file:
        file.write(f"{job.attempt} {os.getpid()}\n")
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return job.attempt


@app.job
def nothing() -> None:
    """Nothing at all."""
