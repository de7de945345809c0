"""Snapshots of a broker under load, each restored and looked at: all that was answered before is in it.

Restored is: opened as a start of the broker would, checked whole, every live job read. The oldest are
removed as they have been looked at, because a disk is finite.
"""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from support.faults.churner import Churner
from support.proof.harness import Harness, Tally
from support.stack import STOKER, Stack

from stoker.broker import clock
from stoker.broker.sqlite import SqliteJournal
from stoker.proto.model import LIVE_STATES

PER_SECOND = 400
KEPT = 5_000
LATER = 500
"""Jobs that are not due while this runs: they are live in every copy."""

FAR_S = 86_400.0


def backups(seed: int, amount: int, broker: str = STOKER) -> Tally:
    """So many of them, one after the other."""
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as name, Stack(Path(name)) as stack:
        stack.broker_call = broker
        stack.start_broker("--done-kept-max", str(KEPT))
        for _ in range(LATER):
            stack.client.enqueue("later", delay_s=FAR_S)
        with Churner(stack.socket, PER_SECOND) as churner:
            for number in range(amount):
                answered = churner.enqueued
                path = Path(stack.client.snapshot(f"copy-{number}").path)
                found += [f"seed {seed}, backup {number}: {text}" for text in odd(path, answered)]
                path.unlink()
        found += [f"seed {seed}: it came to a standstill: {error!r}" for error in churner.errors]
    return Tally({"backups": amount, "jobs": churner.done}, found)


def odd(path: Path, answered: int) -> list[str]:
    """What is wrong with a copy, given how many jobs of the churn were answered before it was asked for."""
    found = [] if _count(path) >= answered else [f"{answered} jobs were answered, {_count(path)} are in it"]
    now = clock.now()
    journal = SqliteJournal(str(path), check=True)
    try:
        recovered = journal.load(boot_id=clock.boot_id(), boot_ms=now.boot_ms, wall_ms=now.wall_ms)
        later = sum(job.kind == "later" for job in recovered.jobs)
        if later != LATER or any(job.state not in LIVE_STATES for job in recovered.jobs):
            found.append(f"{later} of {LATER} scheduled jobs came to life")
        for job in recovered.jobs:
            journal.payload(job.number)
    finally:
        journal.close()
    return found


def _count(path: Path) -> int:
    """How far the churn's jobs are in it without a gap: its jobs and the ids of those that are pruned."""
    with closing(sqlite3.connect(path)) as copy:
        rows = copy.execute("SELECT id FROM jobs UNION SELECT id FROM ids").fetchall()
    there = {id for (id,) in rows}
    count = 0
    while f"churn-{count}" in there:
        count += 1
    return count


HARNESS = Harness(
    name="backups",
    title="snapshots under load, each restored and checked",
    unit="backups",
    goal=200,
    piece=50,
    run=backups,
)
