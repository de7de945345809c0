"""SIGHUP for pools: to a process that is proved to be the pool, and to no other."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from support.pool_process import pool_entry, start_pool_process, was_hung_up
from support.waiting import wait_until

from stoker.cli.hup import NotAskedError, ask
from stoker.worker import process

pytestmark = pytest.mark.slow


@pytest.fixture
def pool() -> Iterator[subprocess.Popen[bytes]]:
    with start_pool_process() as child:
        yield child
        child.kill()


def test_pool_gets_the_signal(pool: subprocess.Popen[bytes]) -> None:
    ask(pool_entry(pool.pid)).close()
    assert pool.stdout is not None
    assert pool.stdout.readline() == b"hung up\n"


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        (0, "00000000-0000-0000-0000-000000000000", "another container"),
        (1, "1", "another container"),
        (2, "-1", "does not say which process"),
        (2, "0", "has ended"),
        (3, "1", "is not that pool"),
    ],
)
def test_process_that_differs_in_any_part_of_its_identity_gets_none(
    pool: subprocess.Popen[bytes], part: int, value: str, said: str
) -> None:
    parts = pool_entry(pool.pid)["identity"].split("/")
    parts[part] = value
    with pytest.raises(NotAskedError, match=said):
        ask(pool_entry(pool.pid, identity="/".join(parts)))
    assert not was_hung_up(pool)


@pytest.mark.parametrize(
    "fields", [{"identity": ""}, {"identity": "a/b"}, {"identity": None}, {"code": None}]
)
def test_entry_that_does_not_say_enough_gets_none(
    pool: subprocess.Popen[bytes], fields: dict[str, Any]
) -> None:
    with pytest.raises(NotAskedError):
        ask(pool_entry(pool.pid, **fields))
    assert not was_hung_up(pool)


def test_process_that_is_no_pool_gets_none_whatever_a_supervisor_said_of_it() -> None:
    with start_pool_process("something-else") as child:
        with pytest.raises(NotAskedError, match="is not that pool"):
            ask(pool_entry(child.pid))
        assert not was_hung_up(child)


def test_own_process_is_no_target() -> None:
    with pytest.raises(NotAskedError):
        ask(pool_entry(os.getpid()))


def test_process_that_has_ended_gets_none(pool: subprocess.Popen[bytes]) -> None:
    ended = pool_entry(pool.pid)
    pool.send_signal(signal.SIGKILL)
    pool.wait(10)
    wait_until(lambda: process.stat(pool.pid) is None, "it is reaped")
    with pytest.raises(NotAskedError):
        ask(ended)
