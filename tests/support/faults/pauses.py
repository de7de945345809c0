"""SIGSTOP of workers for half a lease to three, and of the broker for two: late is not the same as lost.

- A worker that is stopped for less than half its lease keeps its job.
- A pool's worker that is stopped for longer is killed before its job goes to somebody else.
- A raw worker that was, and goes on, acks a job that is another's by then: that must be refused.
- A broker that is stopped finds that everybody was silent for two leases, and must not hold it against them.
"""

import os
import select
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker import JobSpec
from stoker.proto.errors import StokerError

from .. import history as h
from ..oracle import second_deliveries, violations
from ..proof.harness import Harness, Tally
from ..waiting import wait_until
from . import lineage
from .ensemble import Ensemble, in_its_own_directory
from .raw_worker import KIND, name_of
from .spawner import STOKER, Spawned

LEASE_S = 1.0
SHORT = 0.5
"""Of a lease: a worker that was stopped for no longer has been heard in time, by some margin."""

LONG = 1.3
"""Of a lease: one that is stopped for longer has certainly lost it."""

LONGEST = 3.0
GRACE_MS = 1000
"""A tenth of it is what it takes to look at a worker's tree and to kill it; a slow machine may need the rest."""

REST_S = (0.05, 0.4)
"""Between two pauses of one place, so that it takes up some work."""

BROKER_REST_S = (1.5, 3.0)
SPARED = 2
"""Workers of each sort that are there beside those that may be stopped at a time."""

BACKLOG = 36
WORK_MS = ((50, 400), (50, 400), (50, 400), (2000, 3000))
"""Every fourth job is one that is still running when a broker that was stopped goes on."""

FEED_S = 0.1
BOUND_MS = 30_000

OPTIONS = ("--heartbeat-max", "250ms")
"""Of the broker: after a stall of its own it gives everybody so long, or a lease if that is more."""

RAW = "support.faults.raw_worker:main"


class Conditions(NamedTuple):
    """What a trial can be told, for the sake of those that are to find a broken broker quickly."""

    broker: str = STOKER
    pool_places: int = 4
    raw_places: int = 3
    stops_broker: bool = True
    settles: bool = True
    """Wait for the end of all work, and ask the broker about it."""
    lengths: Sequence[tuple[float, float]] = ((0.1, SHORT), (SHORT, LONGEST))
    """Between what a pause is drawn, in leases; each of these is as likely as the others."""


USUAL = Conditions()


Target = tuple[int, int, str]
"""A pid, a descriptor for it, and what it is called in notes."""


class Pauser:
    """Stops and continues: each place for a worker, and the broker, in a thread of its own."""

    def __init__(self, ensemble: Ensemble, seed: int, pauses: int, conditions: Conditions) -> None:
        self.counts: Counter[str] = Counter()
        self._conditions = conditions
        self._ensemble = ensemble
        self._seed = seed
        self._pauses = pauses
        self._random = Random(seed)
        self._raws: list[Spawned] = []
        self._claimed: set[int] = set()
        self._lock = threading.Lock()
        self._enqueued = 0
        self._broker_stopped_ns = 0
        """The last instant at which it was."""

    def start(self) -> None:
        """Everybody."""
        ensemble = self._ensemble
        ensemble.start_broker()
        ensemble.start_pool()
        book = str(ensemble.jobs.path)
        count = self._conditions.raw_places + SPARED
        self._raws = [ensemble.spawn("raw", RAW, ensemble.socket, book) for _ in range(count)]
        wait_until(self._all_came, "all workers", deadline_s=BOUND_MS / 1000)

    def _all_came(self) -> bool:
        workers = self._ensemble.client.status()["workers"]
        return len(workers) >= self._conditions.pool_places + self._conditions.raw_places + 2 * SPARED

    def run(self) -> None:
        """All pauses; everybody goes on at the end."""
        _, pool_places, raw_places, stops_broker, *_ = self._conditions
        with ThreadPoolExecutor(pool_places + raw_places + 1) as threads:
            places = [threads.submit(self._keep, index, self._any_of_pool) for index in range(pool_places)]
            places += [threads.submit(self._keep, ~index, self._any_raw) for index in range(raw_places)]
            if stops_broker:
                places.append(threads.submit(self._keep_broker))
            while not all(place.done() for place in places):
                self._feed()
                time.sleep(FEED_S)
            for place in places:
                place.result()

    # --- work ----------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        """Keep a backlog, so that nobody who is stopped is idle."""
        totals = self._ensemble.client.status()["totals"]
        missing = BACKLOG - totals["ready"] - totals["scheduled"]
        if missing > BACKLOG // 2:
            for job in self._ensemble.client.enqueue_many([self._a_job() for _ in range(missing)]):
                self._ensemble.notebook.note("answered", job.id, "as made", True, job.number, "")

    def _a_job(self) -> JobSpec:
        self._enqueued += 1
        return JobSpec(
            # Nobody declares the raw kind, so its jobs bring their policy with them.
            self._random.choice(("work", KIND)),
            (self._random.randint(*self._random.choice(WORK_MS)), self._enqueued),
            lease_s=LEASE_S,
            attempts_max=10_000,
            crashes_max=10_000,
            backoff_s=0.05,
            backoff_cap_s=0.2,
        )

    # --- pauses ----------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        return self.counts["pauses"] < self._pauses

    def _keep(self, place: int, choose: Callable[[Random], Target | None]) -> None:
        """One place for a worker: whoever is there is stopped, again and again."""
        random = Random(f"{self._seed}/{place}")
        while self._goes_on():
            time.sleep(random.uniform(*REST_S))
            target = choose(random)
            if target is not None:
                try:
                    self._pause(target, random)
                finally:
                    os.close(target[1])
                    self._claimed.discard(target[0])

    def _any_of_pool(self, random: Random) -> Target | None:
        with self._lock:
            workers = [pair for pair in self._ensemble.workers() if pair[0] not in self._claimed]
            if not workers:
                return None
            worker, zygote = random.choice(workers)
            pidfd = lineage.pidfd_of_child(worker, zygote)
            if pidfd is None:
                return None
            self._claimed.add(worker)
            return worker, pidfd, f"{worker}/{zygote}"

    def _any_raw(self, random: Random) -> Target | None:
        with self._lock:
            pid = random.choice([raw.pid for raw in self._raws if raw.pid not in self._claimed])
            self._claimed.add(pid)
            return pid, os.pidfd_open(pid), name_of(pid)

    def _pause(self, target: Target, random: Random) -> None:
        """Stop a worker, for less than half a lease or for up to three, and note what it has to do with."""
        pid, pidfd, name = target
        is_of_pool = name != name_of(pid)
        share = random.uniform(*random.choice(self._conditions.lengths))
        note, since_ns = self._ensemble.notebook.note, time.monotonic_ns()
        took_s, has_died = _stopped(pidfd, share * LEASE_S)
        with self._lock:
            self.counts["pauses"] += 1
            self.counts["pauses over the lease"] += took_s > LONG * LEASE_S
        if has_died or took_s > SHORT * LEASE_S:
            note("silent", name, at_ns=since_ns)
            if has_died:
                note("gone", name)
            elif is_of_pool:
                # A raw worker says so itself, when it has caught up.
                note("heard", name)
        # A broker that was stopped too gives everybody a whole lease more.
        if took_s > LONG * LEASE_S and self._broker_stopped_ns < since_ns:
            note("lapsed", name, GRACE_MS, at_ns=since_ns + round(LEASE_S * 1e9))

    def _keep_broker(self) -> None:
        random = Random(f"{self._seed}/broker")
        broker = self._ensemble.broker
        assert broker is not None
        pidfd = os.pidfd_open(broker.pid)
        try:
            while self._goes_on():
                time.sleep(random.uniform(*BROKER_REST_S))
                self._broker_stopped_ns = time.monotonic_ns() + round(2 * LEASE_S * 1e9)
                _, has_died = _stopped(pidfd, 2 * LEASE_S)
                self._broker_stopped_ns = time.monotonic_ns()
                assert not has_died, "the broker ended by itself"
                with self._lock:
                    self.counts["pauses"] += 1
                    self.counts["pauses of the broker"] += 1
        finally:
            os.close(pidfd)


def _stopped(pidfd: int, pause_s: float) -> tuple[float, bool]:
    """Stop a process for so long, or until it is killed; how long it was really, and whether it died."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    began_s = time.monotonic()
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
        has_died = bool(poll.poll(pause_s * 1000))
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except ProcessLookupError:
        has_died = True
    return time.monotonic() - began_s, has_died


def trial(directory: Path, seed: int, pauses: int, conditions: Conditions = USUAL) -> Tally:
    """So many pauses on one directory, and the verdict."""
    broker, workers = conditions.broker, conditions.pool_places + SPARED
    with Ensemble(
        directory, Random(seed), broker=broker, workers=workers, clients=0, options=OPTIONS
    ) as ensemble:
        pauser = Pauser(ensemble, seed, pauses, conditions)
        try:
            pauser.start()
            pauser.run()
            if conditions.settles:
                ensemble.settle(BOUND_MS)
            records = ensemble.history() if conditions.settles else ensemble.witnessed()
            broken = violations(records)
        except (AssertionError, StokerError) as error:
            records = ensemble.witnessed()
            broken = [f"it came to a standstill: {error}", *violations(records)]
        pauser.counts["stale acks refused"] = sum(note.word == "refused" for note in ensemble.jobs.notes())
    pauser.counts["jobs"] = sum(len(record.rows) for record in records if isinstance(record, h.Ended))
    pauser.counts["second deliveries"] = len(second_deliveries(records))
    return Tally(dict(pauser.counts), [f"seed {seed}, {pauses} pauses: {text}" for text in broken])


def run(seed: int, amount: int) -> Tally:
    """The same in a directory of its own."""
    return in_its_own_directory(lambda directory: trial(directory, seed, amount))


HARNESS = Harness(
    name="pauses",
    title="SIGSTOP of workers for half a lease to three, and of the broker for two, then SIGCONT",
    unit="pauses",
    goal=2_000,
    piece=250,
    run=run,
)
