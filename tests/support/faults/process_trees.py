"""Programs that do all they can to outlive their job, in a real pool; and the death of whoever looks after them.

First they end by themselves, or by their time limit: each outcome and status must be right, and two seconds later
nothing of them lives, no process of stoker has a zombie, and none has more open than before. Then, while they
run, worker, zygote or supervisor are killed: two seconds later nothing of them lives either, and what came in their
place has no zombie and no more open than what was there before.
"""

import os
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker import JobHandle
from stoker.worker import process
from stoker.worker.commands import descendants

from ..programs import a_mark, descriptors_of, living, zombies_below
from ..proof.harness import Harness, Tally
from ..stack import Stack
from ..waiting import wait_until

SLOTS = 20
GONE_S = 2.0
"""After the end of a job, or the death of its keeper."""

TIME_LIMIT_S = 2.0
"""Long enough for a program to be started on a busy machine."""

GRACE_S = 0.3
ROUND_S = 60.0
BATCH = 100

VICTIMS = ("stoker-worker", "stoker-zygote", "stoker-pool")
JOBS_A_KILL = 125


class Shape(NamedTuple):
    """A program of the shell. `{mark}` is how long it sleeps, and what it is known by; `{status}` what it ends with."""

    script: str
    is_endless: bool = False
    """Only its time limit ends it."""


SHAPES = {
    "plain": Shape("exit {status}"),
    "signal": Shape("kill -9 $$"),
    "background": Shape("sleep {mark} & exit {status}"),
    "session": Shape("setsid sleep {mark} & exit {status}"),
    "daemon": Shape(
        "(setsid env -i /bin/sh -c '(/bin/sleep {mark} &) & exec /bin/sleep {mark}' &); exit {status}"
    ),
    "orphans": Shape("for i in 1 2 3 4 5; do (sleep 0.1 &); done; exit {status}"),
    "many": Shape("i=0; while [ $i -lt 30 ]; do sleep {mark} & i=$((i+1)); done; exit {status}"),
    "stopped child": Shape("sleep {mark} & kill -STOP $!; exit {status}"),
    "deaf": Shape("trap '' TERM; sleep {mark} & wait; sleep {mark}", is_endless=True),
    "stopped": Shape("sleep {mark} & kill -STOP $$", is_endless=True),
    "deaf with a hidden daemon": Shape(
        "trap '' TERM; (setsid env -i /bin/sh -c '(/bin/sleep {mark} &) & exec /bin/sleep {mark}' &); sleep {mark}",
        is_endless=True,
    ),
    "deaf daemon": Shape("trap '' TERM HUP; setsid sleep {mark} & sleep {mark}", is_endless=True),
}


class Asked(NamedTuple):
    """A job and how it must end: `outcome`, exit status, signal."""

    job: JobHandle
    shape: str
    end: tuple[str, int | None, int | None]


class Trial:
    """A pool full of such programs. Use within the stack that it is given."""

    def __init__(self, stack: Stack, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._stack = stack
        self._random = random
        self._mark = a_mark()

    def run(self, jobs: int, kills: int) -> None:
        self._start_pool()
        # The first ones make the sentinels, which stay.
        self._judge([self._ask() for _ in range(2 * SLOTS)])
        before = self._descriptors()
        for begin in range(0, jobs, BATCH):
            self._judge([self._ask() for _ in range(min(BATCH, jobs - begin))])
        self._look_for_survivors("the jobs have ended")
        self._look_at_processes(before)
        for number in range(kills):
            self._kill(VICTIMS[number % len(VICTIMS)])
            self._look_at_processes(before)

    def _start_pool(self) -> None:
        self._stack.start_pool("trials:app", 1, "--commands", "--slots", str(SLOTS))
        self._await_worker()

    def _await_worker(self) -> None:
        wait_until(lambda: self._worker() != 0, "the worker for commands is up", deadline_s=20)

    def _worker(self) -> int:
        return next((each["pid"] for each in self._stack.workers() if each["slots"] == SLOTS), 0)

    # --- programs that end ---------------------------------------------------------------------------------

    def _ask(self) -> Asked:
        name = self._random.choice(list(SHAPES))
        shape, status = SHAPES[name], self._random.randrange(1, 256)
        script = shape.script.format(mark=self._mark, status=status)
        job = self._stack.client.enqueue(
            "command",
            [["/bin/sh", "-c", script]],
            {"grace_s": GRACE_S},
            attempts_max=1,
            time_limit_s=TIME_LIMIT_S if shape.is_endless else ROUND_S,
        )
        self.counts["jobs"] += 1
        if shape.is_endless:
            # Those that stop themselves hear TERM when they are continued.
            return Asked(
                job, name, ("timeout", None, signal.SIGTERM if name == "stopped" else signal.SIGKILL)
            )
        return Asked(job, name, ("error", None, 9) if name == "signal" else ("error", status, None))

    def _judge(self, asked: list[Asked]) -> None:
        for each in asked:
            each.job.wait(timeout_s=ROUND_S)
            attempts = self._stack.client.show(each.job.id)["history"]
            ends = [(attempt["outcome"], attempt["status"], attempt["signal"]) for attempt in attempts]
            if ends != [each.end]:
                self.violations.append(f"{each.shape}: ended as {ends}, not as {each.end}")

    # --- what is left ----------------------------------------------------------------------------------------

    def _look_for_survivors(self, when: str) -> None:
        with suppress(AssertionError):
            wait_until(lambda: not living(self._mark), "nothing of them lives", deadline_s=GONE_S)
        if left := living(self._mark):
            self.violations.append(f"{GONE_S} s after {when} {len(left)} of their processes live")
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _look_at_processes(self, before: dict[str, int]) -> None:
        assert self._stack.pool is not None
        if zombies := zombies_below(self._stack.pool.pid):
            self.violations.append(f"zombies below the pool: {zombies}")
        after = self._descriptors()
        if after != before:
            self.violations.append(f"descriptors were {before}, and are {after}")

    def _descriptors(self) -> dict[str, int]:
        """How many are open, by what a process is called, of those of one name the most.

        Worker and nursery have one for each sentinel, which stay when there is nothing to do: those are not counted.
        """
        assert self._stack.pool is not None
        counts: dict[str, int] = {}
        pids = [self._stack.pool.pid, *(each.pid for each in descendants.below(self._stack.pool.pid))]
        names = {pid: process.name_of(pid) for pid in pids}
        sentinels = list(names.values()).count("stoker-sentinel")
        for pid, name in names.items():
            # A program may end meanwhile.
            with suppress(FileNotFoundError):
                counts[name] = max(counts.get(name, 0), descriptors_of(pid))
        for name in ("stoker-worker", "stoker-nursery"):
            counts[name] -= sentinels
        return counts

    # --- the death of a keeper -------------------------------------------------------------------------------

    def _kill(self, victim: str) -> None:
        endless = [name for name, shape in SHAPES.items() if shape.is_endless]
        scripts = [SHAPES[self._random.choice(endless)].script.format(mark=self._mark) for _ in range(SLOTS)]
        jobs = [
            self._stack.client.enqueue("command", [["/bin/sh", "-c", script]], attempts_max=1, crashes_max=1)
            for script in scripts
        ]
        wait_until(lambda: len(living(self._mark)) >= SLOTS, "they run", deadline_s=20)
        time.sleep(self._random.uniform(0, 0.1))
        os.kill(self._pid_of(victim), signal.SIGKILL)
        self.counts["kills"] += 1
        # What is free again would be started again.
        for job in jobs:
            job.cancel()
        self._look_for_survivors(f"{victim} was killed")
        if victim == "stoker-pool":
            assert self._stack.pool is not None
            self._stack.pool.wait(20)
            self._start_pool()
        else:
            self._await_worker()
        self._judge([self._ask() for _ in range(SLOTS)])

    def _pid_of(self, victim: str) -> int:
        worker = process.stat(self._worker())
        assert worker is not None
        zygote = process.stat(worker.parent)
        assert zygote is not None
        return {"stoker-worker": worker.pid, "stoker-zygote": zygote.pid, "stoker-pool": zygote.parent}[
            victim
        ]


def run(seed: int, amount: int) -> Tally:
    """So many programs, and some kills."""
    return run_with({}, seed, amount, max(len(VICTIMS), amount // JOBS_A_KILL))


def run_with(environment: dict[str, str], seed: int, amount: int, kills: int) -> Tally:
    """The same in a pool with more in its environment, which may break it."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory, Stack(Path(directory)) as stack:
        stack.pool_environment = environment
        stack.start_broker()
        trial = Trial(stack, Random(seed))
        trial.run(amount, kills)
        return Tally(trial.counts, [f"seed {seed}: {each}" for each in trial.violations])


HARNESS = Harness(
    name="process_trees",
    title="programs that fork twice, leave their session, ignore TERM, leave orphans; worker, zygote, supervisor killed",
    unit="jobs",
    goal=2_000,
    piece=500,
    run=run,
)
