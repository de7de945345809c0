"""SIGKILL at random moments, of everybody: nothing acknowledged is lost, nothing runs twice without a reason.

Real daemons under the load of four clients. After each kill, whoever died is started again on the same files;
the next one comes when jobs have been running again, up to 50 ms later. At the end faults stop, everything
is finished within a bound, and the oracle judges what all of them have written down.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker.proto.errors import StokerError

from .. import history as h
from ..oracle import second_deliveries, violations
from ..proof.harness import Harness, Tally
from .ensemble import Ensemble, in_its_own_directory
from .errands import Plan
from .spawner import STOKER

PAUSE_S = 0.05
SAMPLE_EVERY = 10

ZYGOTE_DEATHS_MAX = 3
"""Of one supervisor, which waits longer and longer before it starts another: 1 s, 2 s, up to 30."""

BOUND_MS = 45_000
"""The longest way to the end once the last fault is over: a supervisor whose workers have 3 s, the start of a
pool on a slow machine (30 s), some backoffs of 0.4 s, and what has gathered in the meantime."""

VICTIMS = {"broker": 32, "worker": 30, "client": 22, "zygote": 6, "supervisor": 6, "all": 4}
"""Each with its weight. The start of a zygote takes as long as ten of the others."""


class Killer:
    """Kills, and starts again."""

    def __init__(self, ensemble: Ensemble, random: Random, victims: Mapping[str, int]) -> None:
        self._ensemble = ensemble
        self._victims = victims
        self._random = random
        self._zygote_deaths: Counter[int] = Counter()
        """By supervisor."""
        self._ways: dict[str, Callable[[], bool]] = {
            "broker": self._broker,
            "worker": self._worker,
            "client": self._client,
            "zygote": self._zygote,
            "supervisor": self._supervisor,
            "all": self._all,
        }

    def strike(self) -> str:
        """One kill; of whom. Returns when whoever died is there again."""
        while True:
            victim = self._random.choices([*self._victims], [*self._victims.values()])[0]
            if self._ways[victim]():
                return victim

    def _broker(self) -> bool:
        self._ensemble.kill_broker()
        self._ensemble.start_broker()
        return True

    def _worker(self) -> bool:
        workers = self._ensemble.workers()
        return bool(workers) and self._ensemble.kill_child(*self._random.choice(workers))

    def _client(self) -> bool:
        index = self._random.randrange(len(self._ensemble.clients))
        self._ensemble.kill_client(index)
        self._ensemble.revive_client(index)
        return True

    def _zygote(self) -> bool:
        pool, zygotes = self._ensemble.pool, self._ensemble.zygotes()
        if pool is None or not zygotes or self._zygote_deaths[pool.pid] >= ZYGOTE_DEATHS_MAX:
            return False
        self._zygote_deaths[pool.pid] += 1
        return self._ensemble.kill_child(zygotes[0], pool.pid)

    def _supervisor(self) -> bool:
        self._ensemble.kill_supervisor()
        self._ensemble.start_pool()
        return True

    def _all(self) -> bool:
        self._zygote()
        self._ensemble.kill_supervisor()
        self._ensemble.kill_broker()
        for index in range(len(self._ensemble.clients)):
            self._ensemble.kill_client(index)
        self._ensemble.start_broker()
        self._ensemble.start_pool()
        for index in range(len(self._ensemble.clients)):
            self._ensemble.revive_client(index)
        return True


class Conditions(NamedTuple):
    """What a trial can be told, for the sake of those that are to find a broken broker quickly."""

    broker: str = STOKER
    victims: Mapping[str, int] = VICTIMS
    plan: Plan = Plan()
    bound_ms: int = BOUND_MS
    pool: str = STOKER


USUAL = Conditions()


def trial(directory: Path, seed: int, kills: int, conditions: Conditions = USUAL) -> Tally:
    """So many kills on one directory, and the verdict."""
    random = Random(seed)
    counts: Counter[str] = Counter()
    broker, pool, plan = conditions.broker, conditions.pool, conditions.plan
    with Ensemble(directory, random, broker=broker, pool=pool, plan=plan) as ensemble:
        try:
            _kill_and_settle(ensemble, random, kills, conditions, counts)
            records = ensemble.history(late_ms=conditions.bound_ms)
            broken = violations(records)
        except (AssertionError, StokerError) as error:
            # Something did not come back: what has been noted may say why.
            records = ensemble.witnessed()
            broken = [f"it came to a standstill: {error}", *violations(records)]
    counts.update(counts_of(records))
    return Tally(dict(counts), [f"seed {seed}, kill {counts['kills']}: {text}" for text in broken])


def _kill_and_settle(
    ensemble: Ensemble, random: Random, kills: int, conditions: Conditions, counts: Counter[str]
) -> None:
    ensemble.start_broker()
    ensemble.start_pool()
    ensemble.start_clients()
    killer = Killer(ensemble, random, conditions.victims)
    for number in range(kills):
        ensemble.wait_for_work()
        time.sleep(random.uniform(0, PAUSE_S))
        if number % SAMPLE_EVERY == 0:
            ensemble.sample()
        counts[f"kills of {killer.strike()}"] += 1
        counts["kills"] += 1
    ensemble.settle(conditions.bound_ms)


def counts_of(records: Sequence[h.Record]) -> dict[str, int]:
    """What went on while it was tried."""
    return {
        "jobs": sum(len(record.rows) for record in records if isinstance(record, h.Ended)),
        "answers to enqueues": sum(isinstance(record, h.Enqueued) for record in records),
        "attempts": sum(isinstance(record, h.Started) for record in records),
        "second deliveries": len(second_deliveries(records)),
        "retries after a backoff": sum(isinstance(record, h.Retried) for record in records),
    }


def run(seed: int, amount: int) -> Tally:
    """The same in a directory of its own."""
    return in_its_own_directory(lambda directory: trial(directory, seed, amount))


HARNESS = Harness(
    name="random_kills",
    title="SIGKILL of broker, supervisor, zygote, worker, client or all, at random moments under load",
    unit="kills",
    goal=20_000,
    piece=500,
    run=run,
)
