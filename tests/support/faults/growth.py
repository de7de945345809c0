"""What must not grow while jobs come and go: memory, descriptors, the log, and the database beyond its data.

Beside the churn lie jobs that are scheduled for long after: they must pin nothing, neither the log nor the
pages of those that came after them. Retention is on, so that what is finished goes too.

The broker is looked at from outside. Two thirds into a run it has taken what it takes; from there on it may
take no more.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from support.faults.churner import BATCH, Churner
from support.proof.harness import Harness, Tally
from support.stack import STOKER, Stack

from stoker import JobSpec
from stoker.proto import limits

SCHEDULED = 10_000
FAR_S = 30 * 86_400.0
PER_SECOND = 400
KEPT = 1_000
"""Finished jobs."""

EVERY_S = 0.25
MEMORY_BYTES_MAX = 4 * limits.MIB
"""Room for what an allocator does in a run; a leak of 200 bytes a job shows within a minute."""

LOG_FACTOR = 2
DATABASE_FACTOR = 1.5
DATABASE_SLACK_BYTES = limits.MIB


class Sample(NamedTuple):
    """What the broker takes at a moment."""

    memory_bytes: int
    descriptors: int
    log_bytes: int


def sample(pid: int, data: Path) -> Sample:
    """Of a running broker."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    log = next(data.glob("*.db-wal"), None)
    return Sample(
        int(resident.split()[1]) * limits.KIB,
        len(os.listdir(f"/proc/{pid}/fd")),
        log.stat().st_size if log is not None else 0,
    )


def growth(seed: int, seconds: int, broker: str = STOKER, scheduled: int = SCHEDULED) -> Tally:
    """Churn for so long."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as name, Stack(Path(name)) as stack:
        stack.broker_call = broker
        stack.start_broker("--done-kept-max", str(KEPT))
        _schedule(stack, scheduled)
        samples, churner = _churn(stack, seconds)
        done = int(stack.queue()["done"])
        assert stack.broker is not None
        stack.broker.terminate()
        stack.broker.wait(20)
        found = [*_odd(samples), *_odd_database(next(stack.data.glob("*.db")))]
        if done > KEPT + PER_SECOND * limits.PRUNE_ROWS:
            found.append(f"{done} finished jobs are kept, of {KEPT}")
    found += [f"it came to a standstill: {error!r}" for error in churner.errors]
    counts = {"seconds": seconds, "jobs": churner.done}
    return Tally(counts, [f"seed {seed}, {seconds} s: {text}" for text in found])


def _schedule(stack: Stack, scheduled: int) -> None:
    specs = (JobSpec("later", delay_s=FAR_S) for _ in range(scheduled))
    while batch := list(islice(specs, 10 * BATCH)):
        stack.client.enqueue_many(batch)


def _churn(stack: Stack, seconds: int) -> tuple[list[Sample], Churner]:
    assert stack.broker is not None
    samples: list[Sample] = []
    until_s = time.monotonic() + seconds
    with Churner(stack.socket, PER_SECOND) as churner:
        while time.monotonic() < until_s:
            time.sleep(EVERY_S)
            samples.append(sample(stack.broker.pid, stack.data))
    return samples, churner


def _odd(samples: Sequence[Sample]) -> list[str]:
    """What grew although it must not."""
    at = 2 * len(samples) // 3
    early, late = samples[len(samples) // 3 : at], samples[at:]
    found: list[str] = []
    grown = _middle([each.memory_bytes for each in late]) - _middle([each.memory_bytes for each in early])
    if grown > MEMORY_BYTES_MAX:
        found.append(f"memory grew by {grown} bytes, to {late[-1].memory_bytes}")
    if max(each.descriptors for each in late) > max(each.descriptors for each in early):
        found.append(f"descriptors grew from {early[0].descriptors} to {late[-1].descriptors}")
    log_bytes = max(each.log_bytes for each in samples)
    if log_bytes > LOG_FACTOR * limits.WAL_BYTES_CHECKPOINT + limits.MIB:
        found.append(f"the log grew to {log_bytes} bytes")
    return found


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def _odd_database(path: Path) -> list[str]:
    """Whether a database takes much more than its data, once everything is folded in."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        pages, free, page_bytes = (
            int(database.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
    size_bytes, live_bytes = pages * page_bytes, (pages - free) * page_bytes
    if size_bytes > DATABASE_FACTOR * live_bytes + DATABASE_SLACK_BYTES:
        return [f"the database has {size_bytes} bytes for {live_bytes} of data"]
    return []


HARNESS = Harness(
    name="growth",
    title=f"churn beside {SCHEDULED:,} jobs scheduled far ahead: memory, descriptors, log and database stay",
    unit="seconds",
    goal=3_600,
    piece=120,
    run=growth,
)
