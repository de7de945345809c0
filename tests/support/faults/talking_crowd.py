"""Honest clients beside a crowd that talks as much as it can, and after it has gone.

A broker and a pool as they are run; an honest client enqueues a job and waits for its end, again and again,
and now and then looks at that job and asks for the status. Windows take turns: without the crowd, beside it, and right after it has
gone, when much of what it said is still unheard. The crowd is a process of its own (`talkers`).

Judged: the slowest one in a hundred of a window, by the median of all windows of that sort, so that a
neighbour on this machine who slows one or two of them decides nothing; the time for a status; the
broker's memory at its peak; and that it comes to rest when it has heard all that was said.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from support.faults.beside import (
    NOT_SLOW_S,
    PEAK_MIB_MAX,
    SLOWER_MAX,
    lack_of_descriptors,
    peak_mib,
    slowest_in_a_hundred,
)
from support.faults.talkers import HUSH, TALK
from support.proof.harness import Harness, Tally
from support.stack import STOKER, Stack
from support.waiting import wait_until

TESTS = Path(__file__).parents[2]
WORKERS = 4
TURNS = 3
"""So often the crowd comes, and goes."""

WINDOWS = 2
"""Of each sort, each time."""

JOBS = 200
"""Of one window."""

STATUS_EVERY = 5
"""So many jobs."""

STATUS_S_MAX = 1.0
"""A report waits for its turn. Beside a crowd that has just come and asks for the first time, that may be behind
hundreds of others. The median of the windows' slowest."""

SHOW_S_MAX = 1.0
"""It is a turn as well."""

REST_S = 120.0
"""In which a broker hears out a thousand of them. They say 40 MiB, in requests of 20 bytes."""

IDLE_MAX = 0.1
"""Of a core: a broker at rest takes less."""

LOOK_S = 0.25
"""So long its processor time is watched, to see whether it rests."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Conditions(NamedTuple):
    """What a trial can be told, for the sake of short ones, and of those that are to find a broken broker."""

    broker: str = STOKER
    turns: int = TURNS
    jobs: int = JOBS
    slower_max: float = SLOWER_MAX
    not_slow_s: float = NOT_SLOW_S


USUAL = Conditions()


def run(seed: int, amount: int) -> Tally:
    """A crowd of so many."""
    return run_with(USUAL, seed, amount)


def run_with(conditions: Conditions, seed: int, amount: int) -> Tally:
    """The same under other conditions."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory, Stack(Path(directory)) as stack:
        stack.broker_call = conditions.broker
        stack.start_broker()
        stack.start_pool("trials:app", WORKERS)
        trial = Trial(stack, seed, amount, conditions)
        trial.run()
        return Tally(trial.counts, [f"talking crowd, seed {seed}: {fault}" for fault in trial.faults])


class Window:
    """What the honest client saw in each window of one sort."""

    def __init__(self) -> None:
        self.slowest_s: list[float] = []
        """The time in which all but one in a hundred of the jobs were done."""
        self.job_count = 0
        self.status_s: list[float] = []
        """The longest for a status."""
        self.show_s: list[float] = []
        """The longest for a look at a job."""

    def measure(self, stack: Stack, jobs: int) -> None:
        """One more."""
        jobs_s: list[float] = []
        status_s: list[float] = []
        show_s: list[float] = []
        for number in range(jobs):
            began_s = time.monotonic()
            job = stack.client.enqueue("noop")
            job.wait(timeout_s=60)
            jobs_s.append(time.monotonic() - began_s)
            if number % STATUS_EVERY == 0:
                show_s.append(_took_s(partial(stack.client.show, job.id)))
                status_s.append(_took_s(stack.client.status))
        self.job_count += jobs
        self.slowest_s.append(slowest_in_a_hundred(jobs_s))
        self.status_s.append(max(status_s))
        self.show_s.append(max(show_s))


def _took_s(call: Callable[[], Any]) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s


class Trial:
    """One crowd, which comes and goes."""

    def __init__(self, stack: Stack, seed: int, amount: int, conditions: Conditions) -> None:
        assert stack.broker is not None
        self._stack, self._seed, self._amount, self._conditions = stack, seed, amount, conditions
        self._pid = stack.broker.pid
        self._alone, self._beside, self._after = Window(), Window(), Window()
        self.counts: dict[str, int] = {}
        self.faults: list[str] = []

    def run(self) -> None:
        with self._crowd() as crowd:
            for _ in range(self._conditions.turns):
                self._measure(self._alone)
                _tell(crowd, TALK, b"there\n")
                self._measure(self._beside)
                _tell(crowd, HUSH, b"gone\n")
                self._measure(self._after)
                self._rest()
            assert crowd.stdin is not None and crowd.stdout is not None
            crowd.stdin.close()
            report: dict[str, int] = json.loads(crowd.stdout.read())
        self.counts["connections"] = report["connections"]
        self.counts["honest"] = sum(window.job_count for window in (self._alone, self._beside, self._after))
        self.counts["said_kib"] = report["said"] // 1024
        if report["cut off"]:
            self.faults.append(f"{report['cut off']} who read their answers were cut off")
        self._judge_times()
        self._judge_memory()

    def _measure(self, window: Window) -> None:
        for _ in range(WINDOWS):
            window.measure(self._stack, self._conditions.jobs)

    def _crowd(self) -> subprocess.Popen[bytes]:
        arguments = (self._stack.socket, str(self._amount), str(self._seed))
        command = [sys.executable, "-m", "support.faults.talkers", *arguments]
        return subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _rest(self) -> None:
        """Until it has heard all of them out."""
        try:
            wait_until(self._is_at_rest, "rest", deadline_s=REST_S)
        except AssertionError:
            self.faults.append(f"{REST_S:.0f} s after the crowd has gone the broker is still busy with it")

    def _is_at_rest(self) -> bool:
        before = _cpu_s(self._pid)
        time.sleep(LOOK_S)
        return _cpu_s(self._pid) - before < IDLE_MAX * LOOK_S

    def _judge_times(self) -> None:
        alone_s = statistics.median(self._alone.slowest_s)
        self.counts["quiet_us"] = round(alone_s * 1e6)
        for name, window in (("beside", self._beside), ("after", self._after)):
            slowest_s, status_s = statistics.median(window.slowest_s), statistics.median(window.status_s)
            show_s = statistics.median(window.show_s)
            self.counts[f"{name}_us"] = round(slowest_s * 1e6)
            self.counts[f"status_{name}_us"] = round(status_s * 1e6)
            self.counts[f"show_{name}_us"] = round(show_s * 1e6)
            if slowest_s > max(self._conditions.slower_max * alone_s, self._conditions.not_slow_s):
                ms = f"{slowest_s * 1000:.0f} ms {name} the crowd, {alone_s * 1000:.0f} ms without it"
                self.faults.append(f"the slowest job in a hundred takes {ms}")
            if status_s > STATUS_S_MAX:
                self.faults.append(f"a status takes {status_s * 1000:.0f} ms {name} the crowd")
            if show_s > SHOW_S_MAX:
                self.faults.append(f"a look at a job takes {show_s * 1000:.0f} ms {name} the crowd")

    def _judge_memory(self) -> None:
        self.counts["peak_mib"] = peak = peak_mib(self._pid)
        if peak > PEAK_MIB_MAX:
            self.faults.append(f"the broker's memory had a peak of {peak} MiB")


def _tell(crowd: subprocess.Popen[bytes], word: bytes, answer: bytes) -> None:
    assert crowd.stdin is not None and crowd.stdout is not None
    crowd.stdin.write(word)
    crowd.stdin.flush()
    said = crowd.stdout.readline()
    assert said == answer, f"told {word!r}, the crowd says {said!r}"


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def needs() -> str:
    """Whether so many connections are to be had."""
    return lack_of_descriptors(HARNESS.piece)


HARNESS = Harness(
    name="talking_crowd",
    title="connections that talk as much as they can, read or not, stay or leave, beside honest clients",
    unit="connections",
    goal=9_000,
    piece=1_000,
    run=run,
    needs=needs,
)
