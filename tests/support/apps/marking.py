"""Handlers that write down when they start and stop, and can tell whether they are alone with their job.

For the fault harnesses. Each attempt holds a lock on its job while any process of it lives: the kernel lets
go of it only with the last of them. So an attempt that gets the lock proves that nothing of an earlier
one is left, and one that does not get it has found two of them at once.

Where to write is in the environment, under NOTES.
"""

import fcntl
import hashlib
import os
import random
import struct
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from support.faults.lineage import lineage
from support.faults.notebook import Notebook

from stoker import App, current_job

NOTES = Path(os.environ["NOTES"])

app = App()
notebook = Notebook(NOTES / "jobs")

LINGER_MS = 1500

FATES = random.SystemRandom()
"""What an attempt meets with is nothing that a seed could repeat: it depends on who was killed before it."""


line: list[int] = []
"""This process and those it descends from: perhaps a worker, the zygote, the supervisor."""


@app.on_start
def know_yourself() -> None:
    """Now, while all of them live: orphans descend from somebody else.

    The process of an isolated job is forked from a worker that knows already.
    """
    line[:] = [os.getpid(), *line] if line else lineage(os.getpid(), "stoker-pool")


def _lock_job(file: int, job_id: str) -> bool:
    """Lock what stands for the job in a file that is all jobs'. Children that have the descriptor hold it too."""
    place = int.from_bytes(hashlib.sha256(job_id.encode()).digest()[:7])
    lock = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextmanager
def attempt() -> Generator[int]:
    """Note start and end, or that it raised; the descriptor of the lock."""
    job = current_job()
    file = os.open(NOTES / "locks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    is_alone = _lock_job(file, job.id)
    notebook.note("start", job.id, job.token, line, job.attempt, is_alone)
    try:
        yield file
    except BaseException:
        notebook.note("raise", job.token)
        raise
    else:
        notebook.note("stop", job.token)
    finally:
        os.close(file)


@app.job(attempts_max=10_000, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def work(ms: int, mark: int) -> None:
    """Take so long."""
    with attempt():
        time.sleep(ms / 1000)


@app.job(attempts_max=10_000, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def stumble(ms: int, mark: int) -> None:
    """Fail every other time."""
    with attempt():
        time.sleep(ms / 1000)
        if FATES.random() < 0.5:
            raise RuntimeError("stumbled")


@app.job(attempts_max=3, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def fail(ms: int, mark: int) -> None:
    """Fail always."""
    with attempt():
        time.sleep(ms / 1000)
        raise RuntimeError("failed")


def _have_a_child(ms: int) -> None:
    """One that would outlive a worker that is killed, and holds the lock of the job."""
    with attempt() as file:
        child = subprocess.Popen(["sleep", "5"], pass_fds=[file])
        time.sleep(ms / 1000)
        child.kill()
        child.wait()


@app.job(attempts_max=10_000, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def tree(ms: int, mark: int) -> None:
    """Have a child."""
    _have_a_child(ms)


@app.job(attempts_max=10_000, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def linger(ms: int, mark: int) -> None:
    """Have one for longer than a worker may take to end when its supervisor has died."""
    _have_a_child(ms + LINGER_MS)


@app.job(isolate=True, attempts_max=10_000, crashes_max=10_000, backoff_s=0.05, backoff_cap_s=0.4)
def apart(ms: int, mark: int) -> None:
    """As `work`, in a process of its own."""
    with attempt():
        time.sleep(ms / 1000)
