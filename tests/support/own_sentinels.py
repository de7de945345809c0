"""Sentinels of this process as a worker has them, and what can be seen of them from outside."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from support.pools import children_of, is_alive
from support.programs import a_mark, a_shell, living
from support.waiting import wait_until

from stoker.worker import process
from stoker.worker.commands import descendants
from stoker.worker.commands.program import Program
from stoker.worker.commands.sentinels import Running, Sentinels
from stoker.worker.commands.talk import Ended

TREE = """
trap '' TERM
(setsid env -i sh -c '(sleep 600 &) ; (sleep 600 & wait)' $1 $1 &)
sh -c 'kill -STOP $$; sleep 600' $1 &
sleep $1
"""
TREE_COUNT = 4


@contextmanager
def own_sentinels() -> Generator[Sentinels]:
    """They leave no process and no descriptor of theirs behind."""
    before = process.open_descriptors(), descendants.children()
    found = Sentinels()
    yield found
    # One that was killed may be there still, beside the one that took its place.
    there = nurseries()
    found.close()
    wait_until(lambda: not any(map(is_alive, there)), "their end")
    found.close()
    for pid in descendants.children() - before[1]:
        # What `close` did not wait for.
        os.waitpid(pid, 0)
    assert process.open_descriptors() == before[0]


def nurseries() -> list[int]:
    return children_of(os.getpid(), "stoker-nursery")


def sentinels_there() -> list[int]:
    """Pids of all of this process."""
    return [pid for nursery in nurseries() for pid in children_of(nursery, "stoker-sentinel")]


def sentinel_of(running: Running) -> int:
    found = process.stat(running.pid)
    assert found is not None
    assert found.parent in sentinels_there()
    return found.parent


async def start(sentinels: Sentinels, program: Program) -> Running:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return await sentinels.start(program, [null] * 3)
    finally:
        os.close(null)


async def run(sentinels: Sentinels, program: Program) -> Ended:
    return await (await start(sentinels, program)).wait()


async def a_tree(sentinels: Sentinels) -> tuple[Running, str]:
    """A program that has started many, and their mark."""
    mark = a_mark()
    running = await start(sentinels, a_shell(TREE, mark))
    wait_until(lambda: len(living(mark)) >= TREE_COUNT, "all of its tree")
    return running, mark


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
