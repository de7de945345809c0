"""What a program writes, byte by byte, through a function that is slow: nothing lost, nothing kept, the program waits.

The program writes noise that its reader can make as well. The function takes a moment for some chunks, in which
a reader without a bound would take all there is; the program has to be seen blocked in its write then.
"""

import hashlib
from collections import Counter
from random import Random

import trio

from stoker.proto import limits
from stoker.worker.commands.filter import Policy
from stoker.worker.commands.run import of_this_process
from stoker.worker.commands.run import run as run_program
from stoker.worker.commands.sinks import chunks

from ..argvs import python
from ..own_memory import OwnMemory
from ..pipes import is_blocked_in_write
from ..proof.harness import Harness, Tally
from ..taken import Counted
from ..waiting import until

GROWN_BYTES_MAX = 16 * limits.MIB
"""Of the process that reads, however much it is."""

SLOW_EACH = 50
"""Chunks, of which one takes until the program waits."""

NOISE = """
    import random, sys
    noise = random.Random(int(sys.argv[1])).randbytes(1048576)
    for number in range(int(sys.argv[2])):
        sys.stdout.buffer.write(number.to_bytes(8, "big") + noise[8:])
"""
"""So many MiB, no two of which are the same."""


def digest_of(seed: int, mib: int) -> bytes:
    """That of all it writes."""
    noise = Random(seed).randbytes(limits.MIB)
    digest = hashlib.sha256()
    for number in range(mib):
        digest.update(number.to_bytes(8, "big") + noise[8:])
    return digest.digest()


async def read(seed: int, mib: int, policy: Policy, bytes_max: int) -> tuple[Counted, int]:
    """All that came, and how often the program was seen waiting."""
    counted, blocked = Counted(), Counter[str]()
    last = (mib - 1) * limits.MIB

    async def take(chunk: bytes) -> None:
        if counted.count % SLOW_EACH == SLOW_EACH // 2 and counted.bytes < last:
            blocked[await until(lambda: _seen(child.pid), "the program waits, or is over")] += 1
        await counted.digest(chunk)

    lost = counted.lost if policy is Policy.KEEP else None
    sink = chunks(take, policy=policy, bytes_max=bytes_max, lost=lost)
    async with run_program(python(NOISE, str(seed), str(mib)), stdout=sink) as child:
        pass
    return counted, blocked["waits"]


def _seen(pid: int) -> str:
    try:
        return "waits" if is_blocked_in_write(pid, 1) else ""
    except OSError:
        # What a reader may drop keeps no program waiting.
        return "is over"


def run_with(seed: int, amount: int, policy: Policy, bytes_max: int = limits.MIB) -> Tally:
    """`amount` MiB by that policy, within that bound."""
    with OwnMemory() as memory:
        counted, blocked_count = trio.run(read, seed, amount, policy, bytes_max)
    of_this_process().close()
    violations: list[str] = []
    if counted.hash.digest() != digest_of(seed, amount):
        violations.append(f"{counted.bytes} bytes came, and they are not what was written")
    if memory.grown_bytes > GROWN_BYTES_MAX:
        violations.append(f"the reader grew by {memory.grown_bytes} bytes")
    if not blocked_count:
        violations.append("the program was never seen waiting")
    counts = {"MiB": amount, "times seen waiting": blocked_count}
    return Tally(counts, [f"seed {seed}: {each}" for each in violations])


def run(seed: int, amount: int) -> Tally:
    """`amount` MiB, of which nothing may be lost."""
    return run_with(seed, amount, Policy.BLOCK)


HARNESS = Harness(
    name="program_streams",
    title="what a program writes, through a slow function: to the byte, in bounded memory, while it waits",
    unit="MiB",
    goal=2_048,
    piece=2_048,
    run=run,
)
