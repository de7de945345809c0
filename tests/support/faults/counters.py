"""Counters that drift: everything that can happen to jobs, in any order, and a recount every so often.

What `status` says of queues is compared with a recount of the listing and with one by SQL of a snapshot:
states, their sums, and the bytes that take room. A job that was acknowledged as done is never anything else.
"""

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from stoker.proto.errors import RefusedError
from stoker.proto.model import LIVE_STATES, State

from ..proof.harness import Harness, Tally
from ..stack import Stack
from ..waiting import wait_until
from .line_worker import LineWorker, Token

QUEUES = ("mail", "images", "rest")
KIND = "walk"
WORKERS = 3
SLOTS = 4
STEPS_A_COUNT = 50
SETTLED_S = 5.0
"""So long may a count and a recount differ, because leases run out and delays end between them."""

LEASES_S = (0.2, 60.0)
STATES = tuple(state.value for state in State)

Counts = dict[str, dict[str, int]]


class Walk:
    """A random walk over everything, within a stack whose broker runs."""

    def __init__(self, stack: Stack, random: Random, settled_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._stack = stack
        self._random = random
        self._settled_s = settled_s
        self._workers = [self._worker() for _ in range(WORKERS)]
        self._ids: list[str] = []
        self._done: set[str] = set()
        self._stale: list[Token] = []
        self._steps: dict[Callable[[], None], int] = {
            self._enqueue: 40,
            self._ack: 25,
            self._nack: 15,
            self._release: 5,
            self._ack_again: 5,
            self._cancel: 8,
            self._kick: 4,
            self._drop: 4,
            self._turn: 3,
            self._reconnect: 2,
            self._kill: 1,
        }

    def run(self, steps: int) -> None:
        """So many steps, with a recount after each STEPS_A_COUNT of them."""
        for number in range(1, steps + 1):
            (step,) = self._random.choices(list(self._steps), weights=list(self._steps.values()))
            step()
            self.counts["steps"] += 1
            self.counts[step.__name__.lstrip("_")] += 1
            if number % STEPS_A_COUNT == 0:
                self._recount(number)
        for worker in self._workers:
            worker.close()

    # --- steps ---------------------------------------------------------------------------------------------

    def _worker(self) -> LineWorker:
        return LineWorker(self._stack.socket, KIND, SLOTS)

    def _enqueue(self) -> None:
        handle = self._stack.client.enqueue(
            KIND,
            payload=self._random.randbytes(self._random.randrange(2000)),
            queue=self._random.choice(QUEUES),
            delay_s=self._random.choice((0, 0, 0, 0.1, 60)),
            lease_s=self._random.choice(LEASES_S),
            attempts_max=self._random.randint(1, 3),
            backoff_s=0.05,
        )
        self._ids.append(handle.id)

    def _answer(self, op: str, **fields: Any) -> None:
        """One of the workers that hold anything says so of one of its jobs."""
        for worker in self._workers:
            worker.look()
        holding = [worker for worker in self._workers if worker.held]
        if not holding:
            return
        worker = self._random.choice(holding)
        token = self._random.choice(list(worker.held))
        id = worker.held.pop(token)
        said = worker.ask({"op": op, "token": list(token), **fields})
        self._stale.append(token)
        if said["ok"] and op == "ack":
            self._done.add(id)
        elif not said["ok"] and said["error"] != "lease_lost":
            self.violations.append(f"{op} of {id} is refused: {said}")

    def _ack(self) -> None:
        self._answer("ack")

    def _nack(self) -> None:
        self._answer("nack", outcome=self._random.choice(("error", "permanent", "timeout")), reason="so")

    def _release(self) -> None:
        self._answer("release", reason=self._random.choice(("not_started", "released", "shutdown")))

    def _ack_again(self) -> None:
        """A token that has ended, from whoever: repeated, late, or somebody else's."""
        if self._stale:
            token = list(self._random.choice(self._stale))
            self._random.choice(self._workers).ask({"op": "ack", "token": token})

    def _on_some_job(self, do: Callable[[str], object]) -> None:
        if self._ids:
            try:
                do(self._random.choice(self._ids))
            except RefusedError as error:
                self.counts[error.code] += 1

    def _cancel(self) -> None:
        self._on_some_job(self._stack.client.cancel)

    def _kick(self) -> None:
        self._on_some_job(self._stack.client.kick)

    def _drop(self) -> None:
        def drop(id: str) -> None:
            self._stack.client.drop(id)
            self._ids.remove(id)
            self._done.discard(id)

        self._on_some_job(drop)

    def _turn(self) -> None:
        queue = self._random.choice(QUEUES)
        self._random.choice((self._stack.client.pause, self._stack.client.resume))(queue)

    def _reconnect(self) -> None:
        index = self._random.randrange(WORKERS)
        self._workers[index].close()
        self._workers[index] = self._worker()

    def _kill(self) -> None:
        self._stack.kill_broker()
        self._stack.start_broker()
        for worker in self._workers:
            worker.close()
        self._workers = [self._worker() for _ in range(WORKERS)]

    # --- the recount -----------------------------------------------------------------------------------------

    def _recount(self, number: int) -> None:
        differences: list[str] = []

        def agree() -> bool:
            differences[:] = self._differences(number)
            return not differences

        try:
            wait_until(agree, "counts agree", deadline_s=self._settled_s)
        except AssertionError:
            self.violations += [f"step {number}: {difference}" for difference in differences]
        self.counts["recounts"] += 1

    def _differences(self, number: int) -> list[str]:
        report = self._stack.client.status()
        told = {name: {state: queue[state] for state in STATES} for name, queue in report["queues"].items()}
        listed = self._listed()
        stored, taken = self._stored(number)
        found: list[str] = []
        for what, counted in (("the listing", listed), ("the journal", stored)):
            if _kept(told) != _kept(counted):
                found.append(f"status says {_kept(told)}, {what} has {_kept(counted)}")
        sums = {state: sum(queue[state] for queue in told.values()) for state in STATES}
        if sums != dict(report["totals"]):
            found.append(f"the totals are {report['totals']}, the sum over the queues is {sums}")
        bytes_told = {name: queue["bytes"] for name, queue in report["queues"].items() if queue["bytes"]}
        if bytes_told != taken:
            found.append(f"status says {bytes_told} bytes, the journal has {taken}")
        return found + self._undone()

    def _listed(self) -> Counts:
        counts: Counts = {}
        for job in self._stack.client.jobs():
            of_queue = counts.setdefault(job["queue"], dict.fromkeys(STATES, 0))
            of_queue[job["state"]] += 1
        return counts

    def _stored(self, number: int) -> tuple[Counts, dict[str, int]]:
        """By SQL, of a snapshot: states, and the bytes of what lives."""
        path = Path(self._stack.client.snapshot(f"walk-{number}-{self.counts['snapshots']}").path)
        self.counts["snapshots"] += 1
        counts: Counts = {}
        taken: Counter[str] = Counter()
        statement = "SELECT queue, state, count(*), sum(payload_bytes) FROM jobs GROUP BY queue, state"
        with closing(sqlite3.connect(path)) as copy:
            for queue, state, count, size in copy.execute(statement):
                counts.setdefault(queue, dict.fromkeys(STATES, 0))[state] = count
                if state in LIVE_STATES:
                    taken[queue] += size
        path.unlink()
        return counts, {queue: size for queue, size in taken.items() if size}

    def _undone(self) -> list[str]:
        """Jobs whose ack was accepted and that are not done."""
        states = {job["id"]: job["state"] for job in self._stack.client.jobs()}
        return [f"{id} was done and is {states.get(id)}" for id in self._done if states.get(id) != "done"]


def _kept(counts: Counts) -> Counts:
    """Queues that have any job at all."""
    return {name: queue for name, queue in sorted(counts.items()) if any(queue.values())}


def run(seed: int, amount: int) -> Tally:
    """So many steps on a real broker."""
    return run_with(Stack.broker_call, seed, amount)


def run_with(broker: str, seed: int, amount: int, *, settled_s: float = SETTLED_S) -> Tally:
    """The same with a broker that may be a broken one, for which nobody waits so long."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory:
        stack = Stack(Path(directory))
        stack.broker_call = broker
        with stack:
            stack.start_broker()
            walk = Walk(stack, Random(seed), settled_s)
            walk.run(amount)
    return Tally(walk.counts, [f"seed {seed}: {each}" for each in walk.violations])


HARNESS = Harness(
    name="counters",
    title="everything that can happen to a job, in any order, with recounts of what `status` says",
    unit="steps",
    goal=50_000,
    piece=2_500,
    run=run,
)
