"""Clients that are killed between their enqueues and the answers, and ask again: one job for each id.

The same enqueues are sent by one process after the other, each of which is killed somewhere in the middle,
while brokers are killed too. In the end somebody asks who lives to hear every answer, and asks for the same
ids with other bodies, which must be conflicts. Workers run all of it: what a client or a broker goes through
is no reason to run anything twice.
"""

import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker import ConflictError
from stoker.proto.errors import StokerError
from stoker.proto.ids import uuid7

from .. import history as h
from ..oracle import second_deliveries, violations
from ..proof.harness import Harness, Tally
from .crashing_client import Ask, Conversation
from .ensemble import Ensemble, in_its_own_directory
from .spawner import STOKER, Spawned

CRASHING = "support.faults.crashing_client:main"

OVERLAP = 0.3
"""Of the conversations, so many begin while the one before goes on."""

KILL_S_MAX = 0.02
BOUND_MS = 30_000


class Conditions(NamedTuple):
    """What a trial can be told, for the sake of those that are to find a broken broker quickly."""

    broker: str = STOKER
    group: int = 25
    """Enqueues of one conversation."""
    sends_max: int = 20
    """How often one is begun by somebody who does not live to its end."""
    broker_kills: float = 0.03
    """Of the conversations, so many lose their broker."""


USUAL = Conditions()


class Crashes:
    """One run of it over an ensemble without clients of its own."""

    def __init__(self, ensemble: Ensemble, random: Random, conditions: Conditions) -> None:
        self.counts: Counter[str] = Counter()
        self._ensemble = ensemble
        self._random = random
        self._conditions = conditions
        self._talking: list[Spawned] = []

    def group(self, count: int) -> list[Ask]:
        """Enqueue so many jobs, through crashes, until all are known to be stored."""
        asks = [self._new_ask() for _ in range(count)]
        for _ in range(self._random.randint(1, self._conditions.sends_max)):
            self._converse(asks)
            asks = [ask._replace(fresh=False) for ask in asks]
        self._hear_out()
        for ask in asks:
            self._ask_to_the_end(ask)
        self.counts["logical enqueues"] += count
        return asks

    def _new_ask(self) -> Ask:
        is_fresh = self._random.random() < 0.5
        id = uuid7() if is_fresh else f"own-{self._random.getrandbits(60)}"
        return Ask(id, "work", (0, self._random.getrandbits(40)), is_fresh)

    def _converse(self, asks: list[Ask]) -> None:
        """One client that begins, and is killed."""
        share = self._random.choice((1.0, 1.0, self._random.random()))
        conversation = Conversation(tuple(asks), share, self._random.randint(0, len(asks)))
        book = self._ensemble.directory / f"client-{len(self._talking) % 4}"
        text = json.dumps(conversation)
        self._talking.append(
            self._ensemble.spawn("clients", CRASHING, self._ensemble.socket, str(book), text)
        )
        self.counts["client crashes"] += 1
        if self._random.random() < self._conditions.broker_kills:
            if self._random.random() < 0.5:
                time.sleep(self._random.uniform(0, KILL_S_MAX))
            else:
                # When it has just been answered.
                self._hear_out()
            self._ensemble.kill_broker()
            self._ensemble.start_broker()
            self.counts["broker kills"] += 1
        if self._random.random() > OVERLAP:
            self._hear_out()

    def _hear_out(self) -> None:
        """Wait until nobody talks any more."""
        for client in self._talking:
            assert client.has_ended(BOUND_MS / 1000), f"client {client.pid} does not end"
        self._talking.clear()

    def _ask_to_the_end(self, ask: Ask) -> None:
        client, book = self._ensemble.client, self._ensemble.notebook
        job = client.enqueue(ask.kind, ask.arguments, id=ask.id)
        book.note("asked", ask.id, ask.body)
        book.note("answered", ask.id, ask.body, False, job.number, "")

    def ask_otherwise(self, ask: Ask) -> None:
        """The same id with another body."""
        arguments = (*ask.arguments[:-1], -1)
        body = (ask.kind, arguments)
        try:
            job = self._ensemble.client.enqueue(ask.kind, arguments, id=ask.id)
        except ConflictError as error:
            self._ensemble.notebook.note("answered", ask.id, body, False, None, error.code)
            self.counts["conflicts"] += 1
        else:
            self._ensemble.notebook.note("answered", ask.id, body, False, job.number, "")


def trial(directory: Path, seed: int, amount: int, conditions: Conditions = USUAL) -> Tally:
    """So many enqueues on one directory, and the verdict."""
    random = Random(seed)
    with Ensemble(directory, random, broker=conditions.broker, workers=2, clients=0) as ensemble:
        crashes = Crashes(ensemble, random, conditions)
        try:
            ensemble.start_broker()
            ensemble.start_pool()
            for first in range(0, amount, conditions.group):
                for ask in crashes.group(min(conditions.group, amount - first)):
                    crashes.ask_otherwise(ask)
            ensemble.settle(BOUND_MS)
            records = ensemble.history()
            broken = [*violations(records), *_not_one_job_each(records, amount)]
        except (AssertionError, StokerError) as error:
            broken = [f"it came to a standstill: {error}", *violations(ensemble.witnessed())]
    return Tally(dict(crashes.counts), [f"seed {seed}, {amount} enqueues: {text}" for text in broken])


def _not_one_job_each(records: list[h.Record], amount: int) -> list[str]:
    """What is wrong beside the promises: here nothing is a reason for a second job or a second delivery."""
    broken = [f"job {job_id} was delivered twice" for job_id in second_deliveries(records)]
    jobs = sum(len(record.rows) for record in records if isinstance(record, h.Ended))
    return broken if jobs == amount else [*broken, f"{amount} enqueues made {jobs} jobs"]


def run(seed: int, amount: int) -> Tally:
    """The same in a directory of its own."""
    return in_its_own_directory(lambda directory: trial(directory, seed, amount))


HARNESS = Harness(
    name="client_crashes",
    title="clients killed between enqueue and answer, that ask again up to 20 times, and brokers with them",
    unit="logical enqueues",
    goal=50_000,
    piece=2_500,
    run=run,
)
