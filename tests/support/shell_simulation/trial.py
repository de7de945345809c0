"""A world with the real Trio broker in it, run for a seed: the same finding as of a simulated one.

The order in which Trio gives turns to tasks is drawn from the seed too. Trio has no public way to do
that; its own tests and those of Hypothesis use the same two names.
"""

import importlib
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import trio
import trio.testing

from stoker.proto import limits

from ..oracle import violations
from ..simulation.host import Host
from ..simulation.trial import Finding, fault
from ..simulation.world import LONG, LONG_HOURS, Plan, World
from .broker import ShellBroker
from .heap import TrioHeap
from .life import NotedCore, ShellParts

SHELL_HOURS = 2
SHELL = attrs.evolve(
    LONG,
    chaos_ms=SHELL_HOURS * limits.HOUR_MS,
    jobs_per_client=SHELL_HOURS * LONG.jobs_per_client // LONG_HOURS,
    parts=ShellParts(core=NotedCore, retention=LONG.parts.retention),
)


def shell_trial(seed: int, plan: Plan = SHELL) -> Finding:
    """Run a seed to its end, or to the first step that a checker or the broker itself objects to."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    heap = TrioHeap(seed, clock)
    host = Host(heap, plan.weather, plan.stretch)
    directory = tempfile.mkdtemp(prefix="stk-", dir="/tmp")
    try:
        with _scheduled_by(seed):
            trio.run(_run, host, heap, plan, seed, f"{directory}/broker.sock", clock=clock)
        faults = violations(host.history.records)
    except* Exception as group:  # noqa: BLE001  any fault at all is what this looks for
        # An assertion of a checker, of the core or of the driver, or a plain fault of one of them.
        faults = [fault(error) for error in _leaves(group)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return Finding(seed, faults, list(host.history.last), host.history.trace_hash)


@contextmanager
def _scheduled_by(seed: int) -> Generator[None]:
    scheduler: Any = importlib.import_module("trio._core._run")
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = False
        scheduler._r.seed()


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _run(host: Host, heap: TrioHeap, plan: Plan, seed: int, path: str) -> None:
    async with trio.open_nursery() as nursery:
        brokers: list[ShellBroker] = []

        def make(*given: Any) -> ShellBroker:
            brokers.append(ShellBroker(*given, heap=heap, nursery=nursery, path=path))
            return brokers[-1]

        try:
            world = World(seed, plan, host, make)
            await heap.run_in_trio_until(plan.chaos_ms)
            world.make_calm()
            await heap.run_in_trio_until(heap.now_ms + world.settle_ms, world.is_settled)
            world.conclude()
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
            for broker in brokers:
                broker.close()
