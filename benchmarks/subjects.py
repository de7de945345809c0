"""What is measured: stoker and the stand-in, behind one face, each as its user would have it.

For stoker that is `stoker up` and `stoker.Client`. The stand-in's client is as bare as its broker: it
writes what the window allows and reads what has come.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgpack
import standin
import trio
from processes import limited, running, wait_for

from stoker import BrokerUnreachableError, Client, JobSpec
from stoker.commands import run
from stoker.proto import limits

WORKERS = 4

PROGRAM = ["true"]

TEXT = "x" * 95
"""As the only argument it makes a payload of 100 bytes."""

READY_S = 60
WINDOW = 512
"""Jobs on their way at any time, as in stoker's client."""


class Subject(Protocol):
    """A broker with its workers, through one client."""

    def enqueue(self) -> None:
        """One job; it is on disk when this returns."""
        ...

    def enqueue_many(self, count: int) -> None:
        """So many over one connection, without waiting for each; all are on disk when this returns, and perhaps done."""
        ...

    def enqueue_timed(self) -> Any:
        """One job that takes down when it starts; its key, for `started_ns`."""
        ...

    def started_ns(self, key: Any) -> int:
        """When that job started, on the monotonic clock of the host."""
        ...

    def run_programs(self, count: int) -> None:
        """So many programs that do nothing; they have ended when nothing is unfinished, which is soon."""
        ...

    def stream(self, count: int) -> None:
        """The output of a program, so many bytes, to somebody who makes nothing of it."""
        ...

    def unfinished(self) -> int:
        """Jobs that are stored and not done."""
        ...


async def _count_output(count: int) -> None:
    seen = 0

    async def take(chunk: bytes) -> None:
        nonlocal seen
        seen += len(chunk)

    async with run(["head", "-c", str(count), "/dev/zero"], stdout=take):
        pass
    assert seen == count, (seen, count)


class Stoker:
    """`stoker up` with the handlers of `tasks.py`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def enqueue(self) -> None:
        self._client.enqueue("no_op", [TEXT])

    def enqueue_many(self, count: int) -> None:
        self._enqueue_and_wait(JobSpec("no_op", [TEXT]) for _ in range(count))

    def enqueue_timed(self) -> str:
        return self._client.enqueue("start_time", [TEXT]).id

    def started_ns(self, key: str) -> int:
        return int(self._client.wait(key).result)

    def run_programs(self, count: int) -> None:
        self._enqueue_and_wait(JobSpec("command", [PROGRAM], queue="bench") for _ in range(count))

    def _enqueue_and_wait(self, jobs: Iterable[JobSpec]) -> None:
        *_, last = self._client.enqueue_many(jobs)
        # Most end before it. To ask for all again and again instead takes a tenth of what is measured.
        self._client.wait(last.id)

    def stream(self, count: int) -> None:
        # As within a handler; no job is needed for that.
        trio.run(_count_output, count)

    def unfinished(self) -> int:
        queue = self._client.status().get("queues", {}).get("bench", {})
        return sum(int(queue.get(state, 0)) for state in ("scheduled", "ready", "leased"))

    def workers(self, slots: int = 1) -> list[int]:
        """Pids of the workers with so many slots that are ready; none while there is no broker."""
        try:
            workers = self._client.status().get("workers", ())
        except BrokerUnreachableError:
            return []
        return [int(worker["pid"]) for worker in workers if worker["slots"] == slots]


class StandIn:
    """The broker of `standin.py`."""

    def __init__(self, stream: standin.Stream) -> None:
        self._stream = stream

    def enqueue(self) -> None:
        self._ask(standin.ENQUEUE, payload())

    def enqueue_many(self, count: int) -> None:
        sent = answered = 0
        while answered < count:
            burst = min(count - sent, WINDOW - (sent - answered))
            self._stream.outgoing += [standin.packed(standin.ENQUEUE, payload()) for _ in range(burst)]
            self._stream.send()
            sent += burst
            answered += len(self._stream.receive())

    def enqueue_timed(self) -> int:
        return self._ask(standin.ENQUEUE, payload())

    def started_ns(self, key: int) -> int:
        return self._ask(standin.STARTED, key)

    def run_programs(self, count: int) -> None:
        # No broker at all: a loop on one core.
        code = f"import subprocess\nfor _ in range({count}): subprocess.run({PROGRAM!r})"
        command = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), sys.executable, "-c", code]
        subprocess.run(command, check=True)

    def stream(self, count: int) -> None:
        subprocess.run(["sh", "-c", f"head -c {count} /dev/zero | cat > /dev/null"], check=True)

    def unfinished(self) -> int:
        return self._ask(standin.UNFINISHED)

    def _ask(self, *message: Any) -> int:
        self._stream.outgoing.append(standin.packed(*message))
        self._stream.send()
        while True:
            for (answer,) in self._stream.receive():
                return int(answer)


def payload() -> bytes:
    """What stoker's client makes of the arguments, made anew for each job as there."""
    data: bytes = msgpack.packb([[TEXT], {}])
    return data


@contextmanager
def stoker_up(directory: str) -> Generator[Stoker]:
    """A broker and a pool in a directory of their own, ready when this yields."""
    socket = os.path.join(directory, "stoker.sock")
    command = [
        *(sys.executable, "-m", "stoker.cli.main", "up", "tasks:app", "--workers", str(WORKERS)),
        *("--socket", socket, "--data", os.path.join(directory, "data")),
        "--commands",
    ]
    with running(command, Path(directory, "stoker.log")), Client(socket) as client:
        subject = Stoker(client)
        with limited(READY_S, "stoker's workers"):
            wait_for(lambda: len(subject.workers()) == WORKERS)
            wait_for(lambda: len(subject.workers(limits.ASYNC_SLOTS_DEFAULT)) == 1)
        yield subject


@contextmanager
def standin_up(directory: str) -> Generator[StandIn]:
    """The stand-in beside it."""
    socket = os.path.join(directory, "standin.sock")
    command = [
        *(sys.executable, str(Path(__file__).with_name("standin.py")), socket),
        *(os.path.join(directory, "standin.db"), str(WORKERS)),
    ]
    with running(command, Path(directory, "standin.log")):
        with limited(READY_S, "the stand-in"):
            subject = StandIn(_connect(socket))
            # A job that is done shows that it works as a whole.
            subject.enqueue()
            wait_for(lambda: subject.unfinished() == 0)
        yield subject


def _connect(path: str) -> standin.Stream:
    streams: list[standin.Stream] = []

    def is_there() -> bool:
        try:
            streams.append(standin.connect(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    wait_for(is_there)
    return streams[0]
