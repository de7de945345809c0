"""What the machine can do at this moment, without stoker and without a stand-in.

A figure that moved while these moved the same way says nothing about stoker. Taken in each round,
because a shared machine changes its speed from one minute to the next.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any

import apsw

COMMITS_S = 0.4
ROUND_TRIPS_S = 0.3
ITERATIONS = 1_000_000

SETUP = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE rows (row BLOB NOT NULL);
"""


def commits_per_s(directory: str) -> float:
    """Transactions of one row of 100 bytes, each synced before the next begins."""
    path = Path(directory, "yardstick.db")
    # The stubs of apsw name a buffer type that Python 3.11 does not have.
    database: Any = apsw.Connection(str(path))
    try:
        database.execute(SETUP).fetchall()
        row = os.urandom(100)
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < COMMITS_S:
            database.execute("INSERT INTO rows VALUES (?)", (row,))
            count += 1
        return count / (time.perf_counter() - start)
    finally:
        database.close()
        path.unlink()


def round_trips_per_s() -> float:
    """A byte to another process and back, over a Unix socket."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            here.close()
            while byte := there.recv(1):
                there.sendall(byte)
        finally:
            os._exit(0)
    there.close()
    with here:
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < ROUND_TRIPS_S:
            here.sendall(b"x")
            here.recv(1)
            count += 1
        elapsed_s = time.perf_counter() - start
    os.waitpid(child, 0)
    return count / elapsed_s


def loop_ms() -> float:
    """A million turns of an empty loop: how fast this interpreter is on this processor."""
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        pass
    return (time.perf_counter() - start) * 1000
