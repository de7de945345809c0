"""Hostile frames and lines against the broker's real code: in this process for many, in a daemon for some.

In process the broker is the driver with everything but the disk, on real connections, so that an
exception that escapes is seen where it escapes, and the memory that grows is ours. The daemon is
`stoker broker` as it is run. Both are held to the same: every refusal has its name, the honest client
sees no difference, memory does not grow, no descriptor is left, and no frame takes long to decode.
"""

import os
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import trio
from support.faults.attack import FRAMES_IN_GROUP, Attack, Attacker, Tick
from support.proof.harness import Harness, Tally
from support.shell import eventually, serving
from support.stack import Stack

from stoker.broker.core.rules import Rules
from stoker.proto.connection import Connection
from stoker.proto.limits import MIB
from stoker.proto.model import Role
from stoker.proto.queuerules import QueueRules

GROWTH_BYTES_MAX = 16 * MIB
"""Over what there was at first: of the daemon after a few groups, of this process, which also makes the
specimens and keeps them, over the most of the first half."""

WARM_UP_GROUPS = 3

MEASURED_GROUPS = 15
"""Of which each specimen is decoded once more, for its time."""

DECODE_MS_MAX = 5.0
"""And so much more for each megabyte of it."""

LIVE_SHARE = 33
"""One frame in so many goes to a daemon."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


def run(seed: int, amount: int) -> Tally:
    """So many frames in process, and a share more against a daemon."""
    inside, outside = run_in_process(seed, amount), run_live(seed + 1, amount // LIVE_SHARE)
    counts = {name: inside.counts[name] + outside.counts[name] for name in inside.counts}
    return Tally(counts, [*inside.violations, *outside.violations])


def run_in_process(seed: int, amount: int) -> Tally:
    """Against the broker's shell in this process."""
    return trio.run(_attack_shell, seed, amount)


def run_live(seed: int, amount: int) -> Tally:
    """Against a daemon."""
    with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory, Stack(Path(directory)) as stack:
        stack.start_broker("--queue", "h-queue:jobs_max=200")
        assert stack.broker is not None
        watch = Watch(stack.broker.pid)
        return trio.run(_attack, stack.socket, seed, amount, watch, _let_daemon_work)


async def _attack_shell(seed: int, amount: int) -> Tally:
    rules = Rules(queue_default=QueueRules(jobs_max=200, bytes_max=MIB))
    try:
        with tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory:
            async with serving(f"{directory}/broker.sock", rules=rules) as shell:
                watch = Watch(os.getpid(), warm_up_groups=amount // FRAMES_IN_GROUP // 2)
                return await _attack(shell.path, seed, amount, watch, trio.lowlevel.checkpoint)
    except Exception as error:  # noqa: BLE001  whatever escapes from a connection is the finding
        return Tally({"frames": 0}, [f"hostile frames, seed {seed}: escaped: {error!r}"])


async def _let_daemon_work() -> None:
    await trio.sleep(0.0005)


async def _attack(path: str, seed: int, amount: int, watch: "Watch", tick: Tick) -> Tally:
    attack = Attack(path, random.Random(seed), tick)
    attack.on_group = watch.look
    began_s = time.thread_time()
    await attack.run(amount)
    await watch.settle()
    counts = {**attack.counts, "cpu_ms": round((time.thread_time() - began_s) * 1000)}
    found = [*attack.violations, *watch.violations()]
    return Tally(counts, [f"hostile frames, seed {seed}: {fault}" for fault in found])


class Watch:
    """What the broker's process is while it is attacked."""

    def __init__(self, pid: int, *, warm_up_groups: int = WARM_UP_GROUPS) -> None:
        self._pid = pid
        self._warm_up_groups = warm_up_groups
        self._groups = 0
        self._base_bytes = self._peak_bytes = 0
        self._descriptors = _descriptors(pid)
        self._slow: list[str] = []

    def look(self, attackers: list[Attacker]) -> None:
        """After each group."""
        self._groups += 1
        if self._groups <= MEASURED_GROUPS:
            self._measure(attackers)
        if self._groups <= self._warm_up_groups:
            self._base_bytes = max(self._base_bytes, _memory_bytes(self._pid))
        else:
            self._peak_bytes = max(self._peak_bytes, _memory_bytes(self._pid))

    def _measure(self, attackers: list[Attacker]) -> None:
        for attacker in attackers:
            for specimen in attacker.conversation.specimens:
                ms = _decode_ms(specimen.data)
                if ms > DECODE_MS_MAX * (1 + len(specimen.data) / MIB):
                    self._slow.append(f"{specimen.name}: {ms:.1f} ms to decode")

    async def settle(self) -> None:
        """Wait for the ends of connections, some of which take a moment to be understood."""

        async def none_is_left() -> bool:
            return _descriptors(self._pid) <= self._descriptors

        with suppress(AssertionError):
            # Else it is said by `violations`.
            await eventually(none_is_left, "no descriptor is left")

    def violations(self) -> list[str]:
        found = sorted(set(self._slow))
        growth = self._peak_bytes - self._base_bytes
        if growth > GROWTH_BYTES_MAX:
            found.append(f"memory grew by {growth // MIB} MiB over {self._groups} groups")
        left = _descriptors(self._pid) - self._descriptors
        if left > 0:
            found.append(f"{left} descriptors are left")
        return found


def _decode_ms(data: bytes) -> float:
    """Of the best of three tries in time of this thread alone: neighbours do not count."""
    best_ms = float("inf")
    for _ in range(3):
        connection = Connection(frozenset(Role))
        connection.receive_data(data)
        began_s = time.thread_time()
        connection.next_event()
        best_ms = min(best_ms, (time.thread_time() - began_s) * 1000)
        if best_ms < DECODE_MS_MAX:
            break
    return best_ms


def _memory_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


HARNESS = Harness(
    name="hostile_frames",
    title="hostile frames and lines, mixed with valid ones on the same and other connections",
    unit="frames",
    goal=10_000_000,
    piece=500_000,
    run=run,
)
