"""A pool as one call: what `stoker pool APP --workers N` runs."""

import os
from collections.abc import Sequence

import trio

from ..proto import limits
from . import process
from .log import Writer, set_form
from .output import OUTPUT_DEFAULT, OutputRules
from .recycling import NEVER, Recycling
from .supervisor import DRAIN_MS, Supervisor


def main(
    target: str,
    *,
    socket: str,
    workers: int,
    name: str,
    async_workers: int = limits.ASYNC_WORKERS_DEFAULT,
    async_slots: int = limits.ASYNC_SLOTS_DEFAULT,
    queues: Sequence[tuple[str, int]] = (),
    prefetch: int = 0,
    drain_ms: int = DRAIN_MS,
    memory_max: int = 0,
    output: OutputRules = OUTPUT_DEFAULT,
    recycling: Recycling = NEVER,
    watch: bool = False,
    commands: Sequence[str] | None = None,
    data: str = "",
    low_water_bytes: int = limits.LOW_WATER_BYTES,
) -> int:
    """Run a pool of `workers` for the app `module:name` until it is told to end; the exit code.

    Beside them `async_workers` for each loop of which the app has coroutine handlers, each for
    `async_slots` jobs at once. `socket` is where the broker listens, `name` what the pool is called in
    `status`, `queues` the names and weights of those it takes jobs from (none: all), `prefetch` how many quick
    jobs a worker of plain functions gets ahead of the one that it runs, `drain_ms` how long jobs may go on after
    TERM, `memory_max` what a job of a kind without a limit may take in bytes, 0 for all there is, `output` what
    becomes of what they print, `recycling` when workers are replaced, `watch` whether the code is loaded anew when
    its files change, `commands` which programs jobs may run (none: all; None: jobs are no programs), `data` the
    state directory of the broker, where files of what these say are kept as long as `low_water_bytes` are free
    (empty: nowhere). Blocks, takes over TERM, INT and HUP, and is for the main thread.
    """
    if not 1 <= workers <= limits.LIST_ITEMS_MAX:
        raise ValueError(f"workers must be from 1 to {limits.LIST_ITEMS_MAX}, not {workers}")
    if not 0 <= async_workers <= limits.LIST_ITEMS_MAX:
        raise ValueError(f"async_workers must be from 0 to {limits.LIST_ITEMS_MAX}, not {async_workers}")
    if not 1 <= async_slots <= limits.SLOTS_MAX:
        raise ValueError(f"async_slots must be from 1 to {limits.SLOTS_MAX}, not {async_slots}")
    process.set_name(process.POOL_NAME)
    socket = _absolute(socket)
    set_form(output.form)
    writer = Writer()
    try:
        supervisor = Supervisor(
            target,
            socket=socket,
            workers=workers,
            async_workers=async_workers,
            async_slots=async_slots,
            name=name,
            queues=queues,
            prefetch=prefetch,
            drain_ms=drain_ms,
            memory_max=memory_max,
            output=output,
            recycling=recycling,
            watch=watch,
            commands=commands,
            # As bytes, because a name of a file need not be text.
            data=os.fsencode(os.path.abspath(data)) if data else b"",
            low_water_bytes=low_water_bytes,
            say=writer.say,
            write=writer.write,
        )
        return int(trio.run(supervisor.run))
    finally:
        writer.close()


def _absolute(socket: str) -> str:
    """By which programs find it that run elsewhere; as it is, where that would be longer than the kernel allows."""
    absolute = os.path.abspath(socket)
    return absolute if len(os.fsencode(absolute)) <= limits.SOCKET_PATH_BYTES_MAX else socket
