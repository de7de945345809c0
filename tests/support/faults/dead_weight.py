"""Honest clients and workers beside a crowd that says little, reads nothing, or never finishes.

A broker and a pool as they are run; an honest client enqueues a job and waits for its end, again and
again, first alone, then beside the crowd, which is a process of its own. Judged: the honest client's
slowest one in a hundred, the broker's memory at its peak, and how each useless connection was ended.
"""

import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

from support.faults.beside import (
    NOT_SLOW_S,
    PEAK_MIB_MAX,
    SLOWER_MAX,
    lack_of_descriptors,
    peak_mib,
    slowest_in_a_hundred,
)
from support.faults.crowd import LARGE
from support.proof.harness import Harness, Tally
from support.stack import STOKER, Stack

from stoker.proto import limits

TESTS = Path(__file__).parents[2]
WORKERS = 4
JOBS = 200
"""Of one measurement: all but the slowest one in a hundred are looked at."""

MEASUREMENTS = 2
"""Before the crowd comes and after it has gone; and twice as many beside it. Their medians are compared: a
neighbour on this machine slows one of them or two, the crowd all."""

LATE_S = 5.0
"""After its deadline a connection is ended within so long, on a busy machine too."""

UNREAD_LATE_S = 20.0
"""The same for those who do not read. Their time begins when the broker has made what they asked for, and
before their end all is heard that they have said: for a thousand of them that is many requests."""

HURRIED = "support.faults.hurry:main"


class Conditions(NamedTuple):
    """What a trial can be told, for the sake of short ones, and of those that are to find a broken broker."""

    broker: str = STOKER
    times: int = 1
    """Its deadlines are so many times shorter."""
    hold_s: float = 0.0
    """So long the crowd is there at least; 0: until the last deadline has passed."""
    jobs: int = JOBS
    slower_max: float = SLOWER_MAX
    not_slow_s: float = NOT_SLOW_S


USUAL = Conditions()


def run(seed: int, amount: int) -> Tally:
    """A crowd of so many, until the last deadline has passed. Nothing here is random."""
    return run_with(USUAL, seed, amount)


def run_with(conditions: Conditions, seed: int, amount: int) -> Tally:
    """The same under other conditions."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory, Stack(Path(directory)) as stack:
        stack.broker_call = conditions.broker
        stack.start_broker()
        stack.start_pool("trials:app", WORKERS)
        stack.client.enqueue("unknown", id=LARGE, payload=bytes(limits.PAYLOAD_BYTES_MAX), queue="unserved")
        trial = Trial(stack, amount, conditions)
        trial.run()
        return Tally(trial.counts, [f"dead weight, seed {seed}: {fault}" for fault in trial.faults])


class Trial:
    """One crowd."""

    def __init__(self, stack: Stack, amount: int, conditions: Conditions) -> None:
        self._stack = stack
        self._amount = amount
        self._conditions = conditions
        self._times = conditions.times
        self._hold_s = conditions.hold_s or _UNREAD_S / self._times + UNREAD_LATE_S
        self.counts: dict[str, int] = {"connections": 0, "honest": 0, "ended": 0}
        self.faults: list[str] = []

    def run(self) -> None:
        alone_s = [self._slowest_s() for _ in range(MEASUREMENTS)]
        with self._crowd() as crowd:
            assert crowd.stdin is not None and crowd.stdout is not None
            assert crowd.stdout.readline() == b"there\n", "the crowd did not come"
            began_s = time.monotonic()
            beside_s = statistics.median(self._slowest_s() for _ in range(2 * MEASUREMENTS))
            while time.monotonic() < began_s + self._hold_s and not _is_over(crowd.stdout):
                self._slowest_s()
            crowd.stdin.close()
            report: dict[str, Any] = json.loads(crowd.stdout.read().splitlines()[-1])
        quiet_s = statistics.median(alone_s + [self._slowest_s() for _ in range(MEASUREMENTS)])
        self.counts["quiet_us"], self.counts["beside_us"] = round(quiet_s * 1e6), round(beside_s * 1e6)
        if beside_s > max(self._conditions.slower_max * quiet_s, self._conditions.not_slow_s):
            self.faults.append(f"{beside_s * 1000:.1f} ms beside the crowd, {quiet_s * 1000:.1f} ms alone")
        self._judge_memory()
        self._judge_ends(report)

    def _crowd(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "support.faults.crowd", self._stack.socket, str(self._amount)]
        return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _slowest_s(self) -> float:
        """The time in which all but one in a hundred of the jobs are done."""
        took_s: list[float] = []
        for _ in range(self._conditions.jobs):
            began_s = time.monotonic()
            done = self._stack.client.enqueue("noop").wait(timeout_s=10)
            took_s.append(time.monotonic() - began_s)
            if done.state != "done":
                self.faults.append(f"an honest job is {done.state}")
        self.counts["honest"] += len(took_s)
        return slowest_in_a_hundred(took_s)

    def _judge_memory(self) -> None:
        assert self._stack.broker is not None
        self.counts["peak_mib"] = peak = peak_mib(self._stack.broker.pid)
        if peak > PEAK_MIB_MAX:
            self.faults.append(f"the broker's memory had a peak of {peak} MiB")

    def _judge_ends(self, report: dict[str, Any]) -> None:
        for kind, deadline_s, late_s, word in _DUE:
            after_s, ends = deadline_s / self._times, report[kind]
            self.counts["connections"] += ends["count"]
            self.counts["ended"] += ends["ended"]
            if after_s + late_s > self._hold_s:
                continue
            if ends["ended"] < ends["count"] or ends["latest_s"] > after_s + late_s:
                self.faults.append(f"of {kind} not all were ended within {after_s} s: {ends}")
            if word and ends["words"] != {word: ends["count"]}:
                self.faults.append(f"{kind} were not all told {word}: {ends}")


_HANDSHAKE_S, _FRAME_S, _UNREAD_S = (
    milliseconds / 1000 for milliseconds in (limits.HANDSHAKE_MS, limits.FRAME_MS_MAX, limits.UNREAD_MS_MAX)
)
_DUE = (
    ("silent", _HANDSHAKE_S, LATE_S, "handshake_timeout"),
    ("headed", _FRAME_S, LATE_S, "frame_timeout"),
    ("trickle", _FRAME_S, LATE_S, "frame_timeout"),
    ("deaf", _UNREAD_S, UNREAD_LATE_S, ""),
    ("nagging", _UNREAD_S, UNREAD_LATE_S, ""),
    ("half", _UNREAD_S, UNREAD_LATE_S, ""),
)


def _is_over(said: IO[bytes]) -> bool:
    """Whether the crowd has said that nobody is left of it."""
    return bool(select.select([said], [], [], 0)[0])


def needs() -> str:
    """Whether so many connections are to be had."""
    return lack_of_descriptors(HARNESS.piece)


HARNESS = Harness(
    name="dead_weight",
    title="useless connections that say little, read nothing or never finish, beside honest clients",
    unit="connections",
    goal=1000,
    piece=1000,
    run=run,
    needs=needs,
)
