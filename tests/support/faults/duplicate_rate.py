"""How often a job is delivered twice while workers, or brokers, are killed: the rate, and a reason for each.

At full rate, with handlers of 2 ms. In the first half of the time a worker is killed every second:
what it was running runs again, after a crash that is on record with its pid. In the second half the broker is,
every ten seconds: that is no reason to run anything again. What has run is what handlers have written down;
what is on record must explain each run, by its token.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from stoker import JobSpec
from stoker.proto.errors import StokerError

from ..history import Key
from ..oracle import nothing_failed_inside
from ..proof.harness import Harness, Tally
from ..waiting import wait_until
from . import inspection
from .ensemble import Ensemble, in_its_own_directory
from .happy_path import END_S, OPTIONS, SHOWN_MAX
from .ledger import Ledger
from .runs import Runs, Tokens, repeated, wrongs
from .spawner import STOKER

WORKERS = 4
APP, KIND, WORK_MS = "counting:app", "nap", 2
"""So that a worker that is killed is in the middle of a job as a rule."""

UNSEEN_MAX = 400
BATCH = 100
"""Small, so that a phase ends soon after its time."""

WORKER_EVERY_S = 1.0
BROKER_EVERY_S = 10.0


class Phase:
    """One half of the time: who is killed, and what came of it."""

    def __init__(self, ensemble: Ensemble, ledger: Ledger, runs: Runs, victim: str) -> None:
        self.counts: Counter[str] = Counter()
        self._ensemble = ensemble
        self._ledger = ledger
        self._runs = runs
        self._victim = victim
        self._killed: set[int] = set()
        self._is_over = threading.Event()

    def run(self, seconds: float, kill: Callable[[], int], every_s: float) -> list[str]:
        """Jobs at full rate, and a `kill` every so often, which gives a pid; what is wrong with it."""
        before, odd_before = len(self._ledger.stored), len(self._ledger.odd)
        with ThreadPoolExecutor(1) as thread:
            killing = thread.submit(self._keep_killing, kill, every_s)
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    self._ledger.store(BATCH)
            finally:
                self._is_over.set()
            killing.result()
        self._ledger.wait_complete(END_S)
        return self._judged(
            self._ledger.stored[before:], {row["id"] for row in self._ledger.odd[odd_before:]}
        )

    def _keep_killing(self, kill: Callable[[], int], every_s: float) -> None:
        while not self._is_over.wait(every_s):
            self._killed.add(kill())
            self.counts[f"{self._victim} kills"] += 1

    def _judged(self, stored: Sequence[str], odd: Collection[str]) -> list[str]:
        """Those of its jobs that the journal calls odd, and those that have run more than once."""
        of_phase = set(stored)
        tokens = {id: used for id, used in self._runs.tokens().items() if id in of_phase}
        second = sum(len(used) - 1 for used in tokens.values())
        self._count("jobs", len(stored))
        self._count("second deliveries", second)
        return self._unexplained(tokens, {*odd, *repeated(tokens)})

    def _count(self, what: str, count: int) -> None:
        self.counts[f"{what} under {self._victim} kills"] += count

    def _unexplained(self, tokens: Tokens, ids: Collection[str]) -> list[str]:
        """Runs without a place on record, and attempts on record that no crash of somebody killed ended."""
        broken: list[str] = []
        for job in inspection.shown(self._ensemble.socket, sorted(ids)):
            ends = [(_token_of(attempt), attempt["outcome"], _pid_of(attempt)) for attempt in job["history"]]
            used = tokens.get(job["id"], [])
            explained = all(outcome == "crash" and pid in self._killed for _, outcome, pid in ends[:-1])
            on_record = _is_within(used, [token for token, _, _ in ends]) and len(ends) == job["attempt"]
            if job["state"] != "done" or not explained or not on_record:
                broken.append(f"job {job['id']} is {job['state']}, ran as {used}, and on record are {ends}")
        return broken


def _is_within(used: Sequence[Key], recorded: Sequence[Key]) -> bool:
    """Whether all that ran is on record, in that order, and the last on record ran.

    Others may not have: who is killed before the handler's first line has been handed the job all the same.
    """
    left = iter(recorded)
    return all(token in left for token in used) and used[-1:] == recorded[-1:]


def _token_of(attempt: Mapping[str, Any]) -> Key:
    return attempt["token_epoch"], attempt["token_counter"]


def _pid_of(attempt: Mapping[str, Any]) -> int:
    """Of the worker: the third part of its identity."""
    return int(attempt["worker"].split("/")[2])


def _kill_worker(ensemble: Ensemble, random: Random) -> int:
    while True:
        worker, zygote = random.choice(wait_until(ensemble.workers, "a worker"))
        if ensemble.kill_child(worker, zygote):
            return worker


def _kill_broker(ensemble: Ensemble) -> int:
    assert ensemble.broker is not None
    pid = ensemble.broker.pid
    ensemble.kill_broker()
    ensemble.start_broker()
    return pid


def trial(directory: Path, seed: int, seconds: int, *, broker: str = STOKER) -> Tally:
    """For so long on one directory, and the rates."""
    random = Random(seed)
    counts: Counter[str] = Counter(seconds=seconds)
    broken: list[str] = []
    with Ensemble(
        directory, random, broker=broker, workers=WORKERS, clients=0, app=APP, options=OPTIONS
    ) as ensemble:
        try:
            ensemble.start_broker()
            ensemble.start_pool()
            runs = Runs(directory / "runs")
            ledger = Ledger(ensemble.client, runs, lambda: JobSpec(KIND, [WORK_MS]), unseen_max=UNSEEN_MAX)
            of_workers, of_brokers = (
                Phase(ensemble, ledger, runs, victim) for victim in ("worker", "broker")
            )
            half_s = seconds / 2
            broken += of_workers.run(half_s, lambda: _kill_worker(ensemble, random), WORKER_EVERY_S)
            every_s = min(BROKER_EVERY_S, half_s / 2)
            broken += of_brokers.run(half_s, lambda: _kill_broker(ensemble), every_s)
            for phase in (of_workers, of_brokers):
                counts.update(phase.counts)
            broken += wrongs(runs.tokens(), ledger.stored, ledger.seen)
        except (AssertionError, StokerError) as error:
            broken.append(f"it came to a standstill: {error}")
    broken += nothing_failed_inside(ensemble.logged())
    return Tally(dict(counts), [f"seed {seed}, {seconds} s: {text}" for text in broken[:SHOWN_MAX]])


def run(seed: int, amount: int) -> Tally:
    """The same in a directory of its own."""
    return in_its_own_directory(lambda directory: trial(directory, seed, amount))


HARNESS = Harness(
    name="duplicate_rate",
    title="jobs at full rate under a worker kill a second, then a broker kill every 10 s: each repeat explained",
    unit="seconds",
    goal=1_800,
    piece=120,
    run=run,
)
