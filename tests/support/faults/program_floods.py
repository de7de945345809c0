"""Programs that write without end, in one worker with short jobs: how late those are, and what all of it takes.

Twenty of them, some followed by somebody who takes what he can get, and some by one who is stopped; beside them an
honest client enqueues a job for a coroutine handler of the same worker and waits for its end, again and again.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stoker import JobHandle
from stoker.proto import limits

from ..paths import TESTS, python_path
from ..proof.harness import Harness, Tally
from ..stack import Stack
from ..waiting import wait_until
from .beside import peak_mib, slowest_in_a_hundred

FLOODS = 20
FOLLOWED = 3
KINDS = (["yes"], ["cat", "/dev/zero"], ["sh", "-c", "exec yes >&2"], ["sh", "-c", "exec cat /dev/urandom"])
"""Lines, one line without an end, the other stream, what is no text."""

LATE_S = 0.05
"""For the slowest short job in a hundred."""

GROWN_MIB_MAX = 32
"""Of worker and broker: far above what twenty programs have bounds for."""

FLOW_MIB_S_MIN = 20
"""Read of all of them together, while short jobs are timed: a worker that did not read would be quick."""

PAUSE_S = 0.01


class Trial:
    """Within a stack whose broker and pool are up."""

    def __init__(self, stack: Stack, late_s: float) -> None:
        self._stack = stack
        self._late_s = late_s
        self.counts: dict[str, int] = {}
        self.faults: list[str] = []

    def run(self, amount: int) -> None:
        """So many short jobs."""
        stack = self._stack
        assert stack.broker is not None
        worker = self._worker()
        self._short_s(20)
        before = peak_mib(worker), peak_mib(stack.broker.pid)
        floods = [stack.client.enqueue("command", [KINDS[at % len(KINDS)]]) for at in range(FLOODS)]
        wait_until(lambda: all(stack.holder_pid(flood.id) == worker for flood in floods), "all of them run")
        with _followers(stack.socket, floods):
            begun_s, read_bytes = time.monotonic(), _read_bytes(worker)
            took_s = [self._short_s(1) for _ in range(amount)]
            read_mib = (_read_bytes(worker) - read_bytes) / limits.MIB
            flow = read_mib / (time.monotonic() - begun_s)
        slowest_s = slowest_in_a_hundred(took_s)
        self.counts = {
            "short jobs": amount,
            "slowest_us": round(slowest_s * 1e6),
            "MiB read": round(read_mib),
        }
        if flow < FLOW_MIB_S_MIN:
            self.faults.append(f"of the floods only {flow:.0f} MiB a second were read")
        if slowest_s > self._late_s:
            self.faults.append(f"the slowest short job in a hundred took {slowest_s * 1000:.0f} ms")
        self._end(floods)
        grown = peak_mib(worker) - before[0], peak_mib(stack.broker.pid) - before[1]
        self.counts |= {"worker_grown_mib": grown[0], "broker_grown_mib": grown[1]}
        if max(grown) > GROWN_MIB_MAX:
            self.faults.append(f"worker and broker grew by {grown} MiB")
        if self._worker() != worker:
            self.faults.append("the worker was replaced")

    def _worker(self) -> int:
        """The one that runs programs."""
        job = self._stack.client.enqueue("command", [["sleep", "0.3"]])
        pid = wait_until(lambda: self._stack.holder_pid(job.id), "a program runs", deadline_s=20)
        job.wait(timeout_s=20)
        return pid

    def _short_s(self, count: int) -> float:
        """How long so many take, one after the other."""
        began_s = time.monotonic()
        for _ in range(count):
            job = self._stack.client.enqueue("nap", [0.0])
            if not job.wait(timeout_s=10).is_done or self._stack.client.show(job.id)["attempt"] != 1:
                self.faults.append("a short job was not done at its first attempt")
        took_s = time.monotonic() - began_s
        time.sleep(PAUSE_S)
        return took_s

    def _end(self, floods: list[JobHandle]) -> None:
        for flood in floods:
            flood.cancel()
        for flood in floods:
            state = flood.wait(timeout_s=20).state
            (attempt,) = self._stack.client.show(flood.id)["history"]
            if (state, attempt["outcome"]) != ("cancelled", "cancelled"):
                self.faults.append(f"a flood is {state}, its attempt {attempt['outcome']}")
            kept_bytes = len(attempt["output"].encode())
            if not 0 < kept_bytes <= limits.OUTPUT_BYTES_MAX:
                self.faults.append(f"of a flood {kept_bytes} bytes are kept")


def _read_bytes(pid: int) -> int:
    """By all of its reads so far."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


@contextmanager
def _followers(socket: str, floods: list[JobHandle]) -> Generator[None]:
    """Some who read, and one who is stopped. In processes of their own: here they would hold up the honest client."""
    with ExitStack() as stack:
        for flood in floods[:FOLLOWED]:
            stack.enter_context(_tail(socket, flood.id, subprocess.DEVNULL))
        stopped = stack.enter_context(_tail(socket, floods[0].id, subprocess.PIPE))
        assert stopped.stdout is not None
        # Nobody reads on: it stands still in its write.
        stopped.stdout.read(1)
        yield


@contextmanager
def _tail(socket: str, id: str, stdout: int) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "stoker.cli.main", "tail", "-f", "--socket", socket, id]
    environ = os.environ | {"PYTHONPATH": python_path(TESTS)}
    with subprocess.Popen(command, env=environ, stdout=stdout, stderr=subprocess.DEVNULL) as follower:
        yield follower
        follower.kill()


def run_with(late_s: float, seed: int, amount: int) -> Tally:
    """With another bound. Nothing here is random."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory, Stack(Path(directory)) as stack:
        stack.start_broker()
        stack.start_pool("waiting:app", 1, "--commands")
        trial = Trial(stack, late_s)
        trial.run(amount)
        return Tally(trial.counts, [f"seed {seed}: {fault}" for fault in trial.faults])


def run(seed: int, amount: int) -> Tally:
    """So many short jobs beside the floods."""
    return run_with(LATE_S, seed, amount)


HARNESS = Harness(
    name="program_floods",
    title="20 programs that write without end, followed and not, in one worker with short jobs",
    unit="short jobs",
    goal=3_000,
    piece=300,
    run=run,
)
