"""A pool as one call: what `stoker pool APP --workers N` runs."""

import trio

from ..proto import limits
from . import process
from .log import Writer
from .supervisor import DRAIN_MS, Supervisor


def main(target: str, *, socket: str, workers: int, name: str, drain_ms: int = DRAIN_MS) -> int:
    """Run a pool of `workers` for the app `module:name` until it is told to end; the exit code.

    `socket` is where the broker listens, `name` what the pool is called in `status`, `drain_ms` how
    long jobs may go on after TERM. Blocks, takes over TERM and INT, and is for the main thread.
    """
    if not 1 <= workers <= limits.LIST_ITEMS_MAX:
        raise ValueError(f"workers must be from 1 to {limits.LIST_ITEMS_MAX}, not {workers}")
    process.set_name("stoker-pool")
    writer = Writer()
    try:
        supervisor = Supervisor(
            target,
            socket=socket,
            workers=workers,
            name=name,
            drain_ms=drain_ms,
            say=writer.say,
            write=writer.write,
        )
        return int(trio.run(supervisor.run))
    finally:
        writer.close()
