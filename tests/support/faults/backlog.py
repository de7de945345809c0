"""A backlog as large as a queue may be: taken in, kept through a restart, worked off; and what it takes.

While it comes and while it goes the log stays within its bounds, and memory is so much a job. When it is
worked off, and what is finished is pruned but for a few, the database's file is as large as it was: its
pages are free for the next backlog.
"""

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from support.faults.growth import LOG_FACTOR, Sample, sample
from support.faults.timed_worker import TimedWorker
from support.proof.harness import Harness, Tally
from support.stack import Stack

from stoker import JobSpec
from stoker.proto import limits, work

BATCH = 5_000
SLOTS = 256
KEPT = 1_000
EVERY = 1_000
"""Jobs between two looks at the broker."""

BASE_BYTES = 64 * limits.MIB
BYTES_A_JOB_MAX = 2_500
"""Of memory."""

SILENT_S = 20.0

RECOVERY_S = 120.0
"""A million jobs take some 20 s on a quiet machine."""


def backlog(seed: int, jobs: int) -> Tally:
    """One of so many jobs."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as name, Stack(Path(name)) as stack:
        stack.start_broker("--done-kept-max", str(KEPT))
        samples = [*_take_in(stack, jobs)]
        found = _not_there(stack, jobs, "taken in")
        stack.kill_broker()
        began_s = time.monotonic()
        stack.start_broker("--done-kept-max", str(KEPT), within_s=RECOVERY_S)
        recovery_ms = round((time.monotonic() - began_s) * limits.SECOND_MS)
        found += _not_there(stack, jobs, "there after the restart")
        samples += _work_off(stack, jobs)
        done = int(stack.queue()["done"])
        live = sum(int(stack.queue()[state]) for state in ("scheduled", "ready", "leased"))
    if live or not 0 < done <= jobs:
        found.append(f"{live} jobs are left, {done} are kept as done")
    found += _too_much(samples, jobs)
    counts = {"jobs": jobs, "recovery_ms": recovery_ms}
    return Tally(counts, [f"seed {seed}, {jobs} jobs: {text}" for text in found])


def _take_in(stack: Stack, jobs: int) -> Iterator[Sample]:
    specs = (JobSpec("backlog", payload=bytes(100)) for _ in range(jobs))
    while batch := list(islice(specs, BATCH)):
        stack.client.enqueue_many(batch)
        yield _sample(stack)


def _not_there(stack: Stack, jobs: int, what: str) -> list[str]:
    ready = int(stack.queue()["ready"])
    return [] if ready == jobs else [f"{ready} of {jobs} are {what}"]


def _work_off(stack: Stack, jobs: int) -> Iterator[Sample]:
    with TimedWorker(stack.socket, ["backlog"], SLOTS) as worker:
        for number in range(jobs):
            came = worker.wait(SILENT_S)
            if came is None:
                return
            worker.tell(work.Ack(came.job.token))
            if number % EVERY == 0:
                yield _sample(stack)
        until_s = time.monotonic() + SILENT_S
        while int(stack.queue()["leased"]) and time.monotonic() < until_s:
            worker.pause(0.05)


def _sample(stack: Stack) -> Sample:
    assert stack.broker is not None
    return sample(stack.broker.pid, stack.data)


def _too_much(samples: list[Sample], jobs: int) -> Iterator[str]:
    memory_bytes = max(each.memory_bytes for each in samples)
    if memory_bytes > BASE_BYTES + BYTES_A_JOB_MAX * jobs:
        yield f"the broker took {memory_bytes} bytes of memory"
    log_bytes = max(each.log_bytes for each in samples)
    if log_bytes > LOG_FACTOR * limits.WAL_BYTES_CHECKPOINT + limits.BATCH_BYTES_MAX:
        yield f"the log grew to {log_bytes} bytes"


HARNESS = Harness(
    name="backlog",
    title="a backlog of a million jobs: taken in, kept through a kill, worked off",
    unit="jobs",
    goal=1_000_000,
    piece=1_000_000,
    run=backlog,
)
