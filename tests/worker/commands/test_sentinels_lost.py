"""Somebody is killed: the worker, the nursery, a sentinel; or takes what is not its own."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import IO

import pytest
from support.own_sentinels import (
    TREE,
    TREE_COUNT,
    a_tree,
    kill,
    nurseries,
    run,
    sentinel_of,
    sentinels_there,
    start,
)
from support.paths import python_path
from support.pools import children_of, is_alive
from support.programs import (
    LIBRARYS_OWN_SIGNALS,
    a_mark,
    a_program,
    a_shell,
    living,
    status_of,
    zombies_below,
)
from support.waiting import wait_until

from stoker.worker.commands.sentinels import SentinelLostError, Sentinels

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.anyio]


async def test_killed_sentinel_is_told_when_nothing_of_its_program_lives(sentinels: Sentinels) -> None:
    running, mark = await a_tree(sentinels)
    begun_s = time.monotonic()
    kill(sentinel_of(running))
    with pytest.raises(SentinelLostError):
        await running.wait()
    assert living(mark) == set()
    assert time.monotonic() - begun_s < 2
    assert (await run(sentinels, a_shell("exit 5"))).status == 5
    assert zombies_below(os.getpid()) == []


async def test_sentinel_that_was_killed_when_it_had_nothing_to_do_is_not_missed(sentinels: Sentinels) -> None:
    sentinels.warm(3)
    wait_until(lambda: len(sentinels_there()) == 3, "three sentinels")
    kill(*sentinels_there())
    wait_until(lambda: not sentinels_there(), "their end")
    # Until the nursery has seen it too.
    (nursery,) = nurseries()
    wait_until(lambda: not zombies_below(nursery), "nobody left to be reaped")
    assert (await run(sentinels, a_shell("exit 5"))).status == 5


async def test_killed_nursery_disturbs_nobody(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_shell("sleep 0.3; exit 5"))
    (nursery,) = nurseries()
    kill(nursery)
    wait_until(lambda: not nurseries(), "its end")
    assert (await run(sentinels, a_shell("exit 6"))).status == 6
    assert nurseries() != [nursery]
    assert (await running.wait()).status == 5
    assert [(await run(sentinels, a_shell(f"exit {status}"))).status for status in (7, 8)] == [7, 8]
    assert zombies_below(os.getpid()) == []


async def test_nursery_and_sentinel_killed_at_once_are_told_and_replaced(sentinels: Sentinels) -> None:
    running = await start(sentinels, a_program("sleep", "600", limits={"cpu_s": 100}))
    kill(*nurseries(), sentinel_of(running))
    with pytest.raises(SentinelLostError):
        await running.wait()
    # It had limits, so the kernel has ended it.
    wait_until(lambda: not is_alive(running.pid), "its end", deadline_s=2)
    assert (await run(sentinels, a_shell("exit 5"))).status == 5


WORKER = """
import anyio, json, os, signal, sys
from stoker.worker.commands.program import Program
from stoker.worker.commands.sentinels import Sentinels

ENV = {b"PATH": b"/usr/bin:/bin"}

async def main():
    sentinels, null = Sentinels(), os.open("/dev/null", os.O_RDWR)

    async def start(*argv):
        return await sentinels.start(Program([os.fsencode(each) for each in argv], b"/", ENV), [null] * 3)

    if marks := os.environ["MARKS"].split():
        trees = [await start("sh", "-c", TREE, "sh", mark) for mark in marks]
        print("ready", flush=True)
        await anyio.sleep_forever()
    statuses = [(await (await start("sh", "-c", f"(sleep 0.01 &); exit {n}")).wait()).status for n in (0, 3, 255)]
    ended = await (await start("sh", "-c", "kill -TERM $$")).wait()
    running = await start("sleep", "600")
    print(json.dumps([statuses, ended.signal, open(f"/proc/{running.pid}/status").read()]), flush=True)
    running.abandon()
    sentinels.close()

anyio.run(main, backend=sys.argv[1])
"""


@contextmanager
def a_worker(
    backend: str, marks: Sequence[str] = (), ignored: Sequence[str] = ()
) -> Generator[tuple[subprocess.Popen[str], IO[str]]]:
    """It and its stdout. With marks it starts trees and stays, else it reports."""
    traps = f"trap '' {' '.join(ignored)}; " if ignored else ""
    worker = subprocess.Popen(
        [
            "sh",
            "-c",
            f'{traps}exec "$@"',
            "sh",
            sys.executable,
            "-c",
            WORKER.replace("TREE", repr(TREE)),
            backend,
        ],
        env=os.environ | {"PYTHONPATH": python_path(), "MARKS": " ".join(marks)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert worker.stdout is not None
    with worker.stdout:
        try:
            yield worker, worker.stdout
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_killed_worker_takes_all_of_it_along(backend: str) -> None:
    marks = [a_mark() for _ in range(3)]
    with a_worker(backend, marks) as (worker, stdout):
        assert stdout.readline() == "ready\n"
        wait_until(lambda: all(len(living(mark)) >= TREE_COUNT for mark in marks), "all of their trees")
        (nursery,) = children_of(worker.pid, "stoker-nursery")
        theirs = [nursery, *children_of(nursery, "stoker-sentinel")]
        worker.kill()
        wait_until(lambda: not any(map(living, marks)), "the end of all programs", deadline_s=2)
        wait_until(lambda: not any(map(is_alive, theirs)), "the end of all others", deadline_s=2)
    assert len(theirs) == 4


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_signals_that_were_ignored_when_it_was_started_change_nothing(backend: str) -> None:
    ignored = ("CHLD", "PIPE", "TERM", "HUP", "INT", "QUIT", "USR1", "ALRM")
    with a_worker(backend, ignored=ignored) as (worker, stdout):
        statuses, number, status = json.loads(stdout.read())
        assert worker.wait(10) == 0
    assert (statuses, number) == ([0, 3, 255], 15)
    assert int(status_of(status)["SigIgn"], 16) & ~LIBRARYS_OWN_SIGNALS == 0


async def test_thief_of_statuses_in_the_worker_gets_none(sentinels: Sentinels) -> None:
    done, stolen = threading.Event(), list[int]()

    def steal() -> None:
        while not done.wait(0.0005):
            try:
                stolen.append(os.waitpid(-1, os.WNOHANG)[0])
            except ChildProcessError:
                continue

    thief = threading.Thread(target=steal)
    thief.start()
    ended = [
        (await run(sentinels, a_shell(f"(sleep 0.01 &); exit {status}"))).status for status in range(1, 21)
    ]
    done.set()
    thief.join()
    assert ended == list(range(1, 21))
    assert stolen.count(0) > 10
    assert set(stolen) == {0}
