"""Cancel at any moment: before a job was handed out, in its first millisecond, as its result is on the way.

What may be answered: `cancelled` (it never ran, and never will), `cancelling` (it runs, and is being
ended), or the refusal `too_late` (it had ended). What may follow: a job that was `cancelled` leaves no
mark of a start; one that was `cancelling` ends as cancelled, or as done if its handler had finished; none is
run a second time, and nothing final changes. Now and then the broker is killed right behind an answer.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker import JobHandle
from stoker.proto.errors import ClientTimeoutError, RefusedError

from ..proof.harness import Harness, Tally
from ..stack import Stack
from ..waiting import wait_until

WORKERS = 4
CANCEL_AFTER_S = 0.02
"""At most; the push and the start of a handler lie within the first few milliseconds."""

NAPS_S = (0.0, 0.002, 0.01, 60.0)
ROUNDS_A_KILL = 50
IN_FLIGHT = 8
"""Cancels are made one by one, and judged so many rounds later."""

FINAL_S = 10.0


class Asked(NamedTuple):
    """One cancel and its answer."""

    job: JobHandle
    marks: Path
    answer: str


class Trial:
    """A pool under cancels. Use within the stack that it is given."""

    def __init__(self, stack: Stack, random: Random, *, final_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._stack = stack
        self._random = random
        self._final_s = final_s
        self._open: list[Asked] = []

    def run(self, rounds: int) -> None:
        for number in range(1, rounds + 1):
            self._open.append(self._cancel_one(number))
            self.counts["cancels"] += 1
            if number % ROUNDS_A_KILL == 0:
                self._stack.kill_broker()
                self._stack.start_broker()
                self.counts["kills"] += 1
            while len(self._open) > IN_FLIGHT:
                self._judge(self._open.pop(0))
        while self._open:
            self._judge(self._open.pop(0))
        self._free_workers()

    def _free_workers(self) -> None:
        """Nothing of a cancelled job keeps a worker."""
        try:
            wait_until(lambda: self._stack.idle_count() == WORKERS, "idle", deadline_s=self._final_s)
        except AssertionError:
            busy = [worker["jobs"] for worker in self._stack.workers() if worker["state"] != "idle"]
            self.violations.append(f"every job is final or was said to be, but workers run {busy}")

    def _cancel_one(self, number: int) -> Asked:
        marks = self._stack.directory / f"marks-{number}"
        job = self._stack.client.enqueue("run", [str(marks), self._random.choice(NAPS_S)])
        time.sleep(self._random.uniform(0, CANCEL_AFTER_S))
        try:
            answer = self._stack.client.cancel(job.id)
        except RefusedError as error:
            answer = error.code
        self.counts[answer] += 1
        return Asked(job, marks, answer)

    def _judge(self, asked: Asked) -> None:
        try:
            state = asked.job.wait(timeout_s=self._final_s).state
        except ClientTimeoutError:
            state = "unfinished"
        starts, ends = _marks(asked.marks)
        for broken in self._broken(asked, state, starts, ends):
            self.violations.append(f"{asked.job.id}: answered {asked.answer}, then {state}: {broken}")

    def _broken(self, asked: Asked, state: str, starts: int, ends: int) -> Iterator[str]:
        allowed = {"cancelled": {"cancelled"}, "cancelling": {"cancelled", "done"}, "too_late": {"done"}}
        if state not in allowed.get(asked.answer, set()):
            yield "not what was said"
        if asked.answer == "cancelled" and starts:
            yield "it was started"
        if starts > 1:
            yield f"it was started {starts} times"
        if state == "done" and not ends:
            yield "it had not finished"
        shown = self._stack.client.show(asked.job.id)
        outcomes = [attempt["outcome"] for attempt in shown["history"]]
        if len(outcomes) > 1 or (state == "cancelled" and outcomes not in ([], ["cancelled"])):
            yield f"its attempts ended as {outcomes}"


def _marks(path: Path) -> tuple[int, int]:
    """How often it was started, and came to its end."""
    text = path.read_text() if path.exists() else ""
    return text.count("start "), text.count("end ")


def run(seed: int, amount: int) -> Tally:
    """So many cancels of jobs of a real pool."""
    return run_with(Stack.broker_call, seed, amount)


def run_with(broker: str, seed: int, amount: int, *, final_s: float = FINAL_S) -> Tally:
    """The same with a broker that may be a broken one, of which a job's end is not awaited for so long."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory:
        stack = Stack(Path(directory))
        stack.broker_call = broker
        with stack:
            stack.start_broker()
            stack.start_pool("trials:app", WORKERS)
            trial = Trial(stack, Random(seed), final_s=final_s)
            trial.run(amount)
            if trial.violations and stack.pool is not None:
                # It may run what nobody waits for; a drain would.
                stack.pool.kill()
    return Tally(trial.counts, [f"seed {seed}: {each}" for each in trial.violations])


HARNESS = Harness(
    name="cancels",
    title="a job is cancelled within 20 ms of its enqueue, the broker killed now and then",
    unit="cancels",
    goal=2_000,
    piece=1_000,
    run=run,
)
