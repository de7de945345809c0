"""Somebody sets the wall clock of a real broker: leases and backoff do not care, dates are kept once.

The time is set while a lease runs and while a job waits for its next attempt. Before some steps forward a
job is dated into the time that is stepped over.

Lateness is measured from outside, so a busy machine can make anything late. A step that was late is
therefore done again: what the clock makes late is late each time. What is early is wrong at once.
"""

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from support.faults.set_clock import WallClock
from support.faults.timed_worker import Came, TimedWorker
from support.proof.harness import Harness, Tally
from support.stack import Stack

from stoker.proto import limits, work

LEASE_MS = 400
BACKOFF_MS = 300
EARLY_MS = 3
"""Two clocks are read, each in whole milliseconds."""

LATE_MS = 50
TRIES = 4
DATE_LATE_MS = limits.WALL_RECHECK_MS + 500
DATED_SHARE = 0.6
LOST_S = 10.0

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z \S+")

_FIRST_S, _LAST_S = 86_400, 4_102_444_800
"""1970-01-02 and 2100: no clock is set beyond."""


class Steps:
    """Steps of the clock of one broker, and what came of them."""

    def __init__(self, seed: int, stack: Stack, clock: WallClock) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._stack = stack
        self._clock = clock
        self._worker = TimedWorker(stack.socket, ["lease", "nack", "date"], 16)
        self._done: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def run(self, amount: int) -> None:
        """So many steps, then a look at the whole."""
        with self._worker:
            for number in range(amount):
                self._step(number)
                if self.violations:
                    return
            self._look_at_all()

    def _step(self, number: int) -> None:
        to_s = self._target_s()
        for left in reversed(range(TRIES)):
            late = list(self._late(number, to_s))
            self.counts["steps"] += 1
            if not late or self.violations:
                return
            self.counts["late_tries"] += 1
            if not left:
                self._blame(number, to_s, f"late {TRIES} times: {'; '.join(late)}")

    def _target_s(self) -> float:
        now_s = self._clock.now_s
        day = 86_400.0
        choices = [
            now_s - 2 * day,
            now_s + 400 * day,
            float(_FIRST_S),
            2_147_483_647 - self._random.random(),
            now_s + self._random.choice([-1.0, 1.0]),
            now_s + self._random.uniform(-2, 2),
            time.time(),
        ]
        return min(max(self._random.choice(choices), _FIRST_S), _LAST_S)

    def _late(self, number: int, to_s: float) -> Iterator[str]:
        """One step of the clock while a lease and a backoff run; what was late. Early is a violation."""
        id = f"{self._seed}-{number}-{self.counts['steps']}"
        client, backoff_s = self._stack.client, BACKOFF_MS / 1000
        asked_s = time.monotonic()
        client.enqueue("lease", id=f"{id}-lease", lease_s=LEASE_MS / 1000)
        leased = self._collect({f"{id}-lease"})[f"{id}-lease"]
        client.enqueue("nack", id=f"{id}-nack", backoff_s=backoff_s, backoff_cap_s=backoff_s)
        failed = self._collect({f"{id}-nack"})[f"{id}-nack"]
        nacked_s = time.monotonic()
        self._worker.ask(work.Nack(failed.job.token, "error", "on purpose"))
        confirmed_s = time.monotonic()
        dated = f"{id}-date" if self._is_forward(to_s) and self._random.random() < DATED_SHARE else ""
        if dated:
            client.enqueue("date", id=dated, run_at=(self._clock.now_s + to_s) / 2)
        self._worker.pause(self._random.uniform(0, 0.2))
        self._clock.set(to_s)
        stepped_s = time.monotonic()
        came = self._collect({f"{id}-lease", f"{id}-nack"} | ({dated} - {""}))
        if len(came) < 2 + bool(dated):
            self._blame(number, to_s, f"only {sorted(came)} came within {LOST_S} s")
            return
        lowest_ms = round(BACKOFF_MS * (1 - limits.BACKOFF_JITTER))
        spans = [
            ("the lease", came[f"{id}-lease"], asked_s, leased.at_s, LEASE_MS, LEASE_MS),
            ("the backoff", came[f"{id}-nack"], nacked_s, confirmed_s, lowest_ms, BACKOFF_MS),
        ]
        for what, job, from_s, until_s, least_ms, most_ms in spans:
            if 1000 * (job.at_s - from_s) < least_ms - EARLY_MS:
                self._blame(number, to_s, f"{what} was over after {1000 * (job.at_s - from_s):.0f} ms")
            elif 1000 * (job.at_s - until_s) > most_ms + LATE_MS:
                yield f"{what} took {1000 * (job.at_s - until_s):.0f} ms"
        if dated:
            self.counts["dated_jobs"] += 1
            if 1000 * (came[dated].at_s - stepped_s) > DATE_LATE_MS:
                yield f"a dated job came after {1000 * (came[dated].at_s - stepped_s):.0f} ms"
            if came[dated].at_s < stepped_s:
                self._blame(number, to_s, "a dated job came before its date")

    def _is_forward(self, to_s: float) -> bool:
        return to_s > self._clock.now_s + 3600

    def _collect(self, ids: set[str]) -> dict[str, Came]:
        """These jobs as they come; those that are to end here are acked."""
        found: dict[str, Came] = {}
        until_s = time.monotonic() + LOST_S
        while found.keys() != ids and (came := self._worker.wait(until_s - time.monotonic())) is not None:
            job = came.job
            if job.id in self._done or job.id not in ids:
                self.violations.append(f"seed {self._seed}: {job.id} came once more, attempt {job.attempt}")
                return found
            found[job.id] = came
            if job.attempt > 1 or job.kind == "date":
                self._worker.ask(work.Ack(job.token))
                self._done.add(job.id)
        return found

    def _blame(self, number: int, to_s: float, text: str) -> None:
        self.violations.append(f"seed {self._seed}, step {number} to {to_s:.3f}: {text}")

    def _look_at_all(self) -> None:
        """Nothing was deleted, nothing comes again, and the log can be read."""
        extra = self._worker.wait(limits.WALL_RECHECK_MS / 1000)
        if extra is not None:
            self.violations.append(f"seed {self._seed}: {extra.job.id} came once more at the end")
        done = int(self._stack.queue()["done"])
        if done != len(self._done):
            self.violations.append(f"seed {self._seed}: {done} jobs are done, {len(self._done)} were acked")
        log = (self._stack.directory / "broker.log").read_text()
        odd = [line for line in log.splitlines() if not LOG_LINE.match(line)]
        self.violations += [f"seed {self._seed}: a line of the log is {line!r}" for line in odd[:3]]


def clock_steps(seed: int, amount: int, broker: str = "support.faults.set_clock:main") -> Tally:
    """So many steps of the clock of one broker, which may be a broken one."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as name:
        directory = Path(name)
        clock = WallClock(directory / "offset")
        with Stack(directory) as stack:
            stack.broker_call = broker
            stack.broker_environment = clock.environment
            # After a stall of the broker a lease has so much more: on a busy machine that happens.
            stack.start_broker("--heartbeat-max", f"{LEASE_MS}ms")
            steps = Steps(seed, stack, clock)
            try:
                steps.run(amount)
            except (AssertionError, OSError, KeyError) as error:
                steps.violations.append(f"seed {seed}, step {steps.counts['steps']}: {error!r}")
    return Tally(dict(steps.counts), steps.violations)


HARNESS = Harness(
    name="clock_steps",
    title="the wall clock is set while leases, backoff and dates run",
    unit="steps",
    goal=500,
    piece=50,
    run=clock_steps,
)
