"""A live broker that may open no more files, or take no more memory, while clients come and jobs run.

Descriptors: its limit is lowered to a few more than it has, hundreds of clients come, and the limit is
raised again. Judged: those who were there before are served as ever, a job with a short lease runs
through, the broker sleeps rather than try in vain, and full service is back within a second.

Memory: its address space is limited to a little more than it has, and a client enqueues until something
gives. The broker may end, with the code of a fault of its own; what it had acknowledged is there again.
"""

import os
import resource
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from support.faults.crowd import frame
from support.proof.harness import Harness, Tally
from support.stack import STOKER, Stack

from stoker import Client
from stoker.config.exits import Exit
from stoker.proto.errors import StokerError
from stoker.proto.limits import MIB, PAYLOAD_BYTES_MAX
from stoker.proto.messages import Why
from stoker.proto.ops import BY_MESSAGE

SPARE = 12
CLIENTS = 400
STARVED_S = 2.0
LEASE_S = 0.6
"""Shorter than the famine: without heartbeats the job would be handed out again."""

BUSY_MAX = 0.10
BACK_S = 1.0
END_S = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def run(seed: int, amount: int) -> Tally:
    """So many, every third of memory. Nothing here is random."""
    return run_with(STOKER, seed, [Pinch if number % 3 == 2 else Famine for number in range(amount)])


def run_with(call: str, seed: int, trials: "Sequence[type[Famine | Pinch]]") -> Tally:
    """These, with a broker that may be a broken one."""
    counts = {"famines": 0, "clients": 0, "refused": 0, "acknowledged": 0, "ended": 0}
    found: list[str] = []
    for trial in trials:
        with (
            tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory,
            Stack(Path(directory)) as stack,
        ):
            stack.broker_call = call
            faults = trial(stack, counts).run()
            found += [f"{trial.__name__}, seed {seed}: {fault}" for fault in faults]
            counts["famines"] += 1
    return Tally(counts, found)


class Famine:
    """Of descriptors."""

    def __init__(self, stack: Stack, counts: dict[str, int]) -> None:
        self._stack = stack
        self._counts = counts
        self._clients: list[socket.socket] = []

    def run(self) -> list[str]:
        stack = self._stack
        stack.start_broker()
        stack.start_pool("trials:app", 2)
        marks = str(stack.directory / "marks")
        job = stack.client.enqueue("run", [marks, STARVED_S], lease_s=LEASE_S)
        try:
            found = [*self._starve(), *self._recover()]
        finally:
            for client in self._clients:
                client.close()
        done = job.wait(timeout_s=END_S)
        if (done.state, done.attempt) != ("done", 1):
            found.append(f"the job that ran meanwhile is {done.state}, attempt {done.attempt}")
        return found

    def _starve(self) -> list[str]:
        pid = self._pid
        used = len(os.listdir(f"/proc/{pid}/fd"))
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + SPARE, hard))
        self._clients = [self._come() for _ in range(CLIENTS)]
        self._counts["clients"] += CLIENTS
        began_s, busy_s, slowest_s = time.monotonic(), _busy_s(pid), 0.0
        while (now_s := time.monotonic()) < began_s + STARVED_S:
            self._stack.client.enqueue("unserved", queue="unserved")
            slowest_s = max(slowest_s, time.monotonic() - now_s)
            select.select([], [], [], 0.05)
        share = (_busy_s(pid) - busy_s) / (time.monotonic() - began_s)
        found = [f"busy for {share:.0%} while starved"] if share > BUSY_MAX else []
        return found + ([f"an enqueue took {slowest_s:.2f} s"] if slowest_s > BACK_S else [])

    @property
    def _pid(self) -> int:
        assert self._stack.broker is not None
        return self._stack.broker.pid

    def _come(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(self._stack.socket)
        client.setblocking(False)
        client.send(frame(BY_MESSAGE[Why].number, 1, "nothing"))
        return client

    def _recover(self) -> list[str]:
        _, hard = resource.prlimit(self._pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (hard, hard))
        began_s = time.monotonic()
        poll = select.poll()
        waiting = {client.fileno(): client for client in [*self._clients, self._come_late()]}
        for client in waiting.values():
            poll.register(client, select.POLLIN)
        found: list[str] = []
        while waiting and time.monotonic() < began_s + BACK_S:
            for descriptor, _ in poll.poll(10):
                poll.unregister(descriptor)
                found += self._hear(waiting.pop(descriptor))
        return found + ([f"{len(waiting)} were not served within {BACK_S} s"] if waiting else [])

    def _come_late(self) -> socket.socket:
        self._clients.append(self._come())
        return self._clients[-1]

    def _hear(self, client: socket.socket) -> list[str]:
        try:
            said = client.recv(4096)
        except ConnectionResetError:
            said = b""
        if b"job_not_found" in said:
            return []
        if b"too_many_connections" in said:
            self._counts["refused"] += 1
            return []
        return [f"a client was told {said!r}"]


class Pinch:
    """Of memory."""

    def __init__(self, stack: Stack, counts: dict[str, int]) -> None:
        self._stack = stack
        self._counts = counts
        self._acknowledged: list[str] = []

    def run(self) -> list[str]:
        stack = self._stack
        stack.start_broker()
        assert stack.broker is not None
        with open(f"/proc/{stack.broker.pid}/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * _PAGE
        resource.prlimit(stack.broker.pid, resource.RLIMIT_AS, (used + 16 * MIB, used + 16 * MIB))
        self._fill()
        self._counts["acknowledged"] += len(self._acknowledged)
        return [*self._end(), *self._look()]

    def _fill(self) -> None:
        payload = os.urandom(PAYLOAD_BYTES_MAX)
        self._stack.client.close()
        self._stack.client = Client(self._stack.socket, retry_s=0, timeout_s=END_S)
        for number in range(200):
            try:
                self._stack.client.enqueue("unserved", id=f"job-{number}", payload=payload)
            except StokerError:
                return
            self._acknowledged.append(f"job-{number}")

    def _end(self) -> list[str]:
        """The broker lives on, or ends by itself and says so."""
        broker = self._stack.broker
        assert broker is not None
        try:
            code = broker.wait(0.5)
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait(END_S)
            return []
        self._counts["ended"] += 1
        return [] if code in (Exit.FAILURE, Exit.STORAGE) else [f"the broker ended with {code}"]

    def _look(self) -> list[str]:
        self._stack.start_broker()
        return [
            f"{id} is lost" for id in self._acknowledged if self._stack.client.show(id)["state"] != "ready"
        ]


def _busy_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def needs() -> str:
    """A broker hides its descriptors from all but root."""
    return "" if os.geteuid() == 0 else "only root may look at a broker's descriptors"


HARNESS = Harness(
    name="starvation",
    title="no more descriptors, or no more memory, for a live broker",
    unit="famines",
    goal=30,
    piece=6,
    run=run,
    needs=needs,
)
