"""What a worker of a real pool makes of jobs that come ahead of the one that it runs."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pools import RunningPool
from support.waiting import wait_until

from stoker.proto import limits, work

pytestmark = pytest.mark.slow

APP = """
    @app.job
    def mark(path, until=""):
        with open(path, "a") as file:
            file.write(f"{current_job().token[1]}\\n")
        while until and not os.path.exists(until):
            time.sleep(0.005)
"""


@pytest.fixture
def pool(short_directory: Path) -> Iterator[RunningPool]:
    """One worker, and a broker that hands it everything at once."""
    with RunningPool(short_directory, app=APP, prefetch=limits.PREFETCH_MAX) as pool:
        pool.broker.sends_ahead = True
        pool.broker.wait_workers(1)
        yield pool


def begun(pool: RunningPool) -> list[int]:
    """Counters of the jobs that have begun, in their order."""
    path = pool.directory / "marks"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def put(pool: RunningPool, *, long: bool = False) -> int:
    """A job; a long one runs until `finish`."""
    until = str(pool.directory / "until") if long else ""
    return pool.broker.put("mark", str(pool.directory / "marks"), until)


def put_long(pool: RunningPool) -> int:
    counter = put(pool, long=True)
    wait_until(lambda: counter in begun(pool), "the long one runs")
    return counter


def finish(pool: RunningPool) -> None:
    (pool.directory / "until").touch()


def test_worker_says_how_many_it_takes_and_runs_them_in_their_order(pool: RunningPool) -> None:
    (worker,) = pool.broker.wait_workers(1)
    assert worker.hello is not None
    assert (worker.hello.slots, worker.hello.prefetch) == (1, limits.PREFETCH_MAX)
    counters = [put_long(pool), *(put(pool) for _ in range(limits.PREFETCH_MAX))]
    assert begun(pool) == counters[:1]
    finish(pool)
    assert [pool.broker.wait_answer(counter)[0] for counter in counters] == ["ack"] * len(counters)
    assert begun(pool) == counters


def test_recalled_jobs_do_not_begin_and_what_runs_is_not_disturbed(pool: RunningPool) -> None:
    running, *ahead = put_long(pool), put(pool), put(pool)
    assert pool.broker.recall(ahead[-1]).started == [1, running]
    later = put(pool)
    finish(pool)
    assert pool.broker.wait_answer(running)[0] == "ack"
    assert [pool.broker.wait_answer(each)[1] for each in ahead] == [
        work.Release([1, each], "not_started") for each in ahead
    ]
    assert pool.broker.wait_answer(later)[0] == "ack"
    assert begun(pool) == [running, later]


def test_worker_that_runs_nothing_has_begun_nothing(pool: RunningPool) -> None:
    before = put(pool)
    pool.broker.wait_answer(before)
    (worker,) = pool.broker.wait_workers(1)
    pool.broker.wait_at_rest(worker)
    assert pool.broker.recall(before + 1).started is None
    assert pool.broker.wait_answer(put(pool))[0] == "release"
    assert pool.broker.wait_answer(put(pool))[0] == "ack"


def test_death_tells_of_what_ran_and_not_of_what_waited_behind_it(pool: RunningPool) -> None:
    running, _ = put_long(pool), put(pool)
    (worker,) = pool.broker.wait_workers(1)
    os.kill(worker.pid, signal.SIGKILL)
    assert pool.broker.wait_exit(worker.nonce).tokens == [[1, running]]


def test_death_tells_also_of_what_was_over_and_not_confirmed(pool: RunningPool) -> None:
    pool.broker.withhold = lambda op: op == "ack"
    over = [put(pool) for _ in range(3)]
    running = put_long(pool)
    (worker,) = pool.broker.wait_workers(1)
    os.kill(worker.pid, signal.SIGKILL)
    assert sorted(map(list, pool.broker.wait_exit(worker.nonce).tokens)) == [
        [1, each] for each in (*over, running)
    ]


def test_what_is_confirmed_makes_room_for_what_comes_after(pool: RunningPool) -> None:
    first = put_long(pool)
    counters = [first, *(put(pool) for _ in range(4 * limits.PREFETCH_MAX))]
    finish(pool)
    assert [pool.broker.wait_answer(counter)[0] for counter in counters] == ["ack"] * len(counters)
    (pool.directory / "until").unlink()
    running = put_long(pool)
    (worker,) = pool.broker.wait_workers(1)
    os.kill(worker.pid, signal.SIGKILL)
    assert pool.broker.wait_exit(worker.nonce).tokens == [[1, running]]


def test_worker_takes_none_ahead_unless_its_pool_is_told_so(short_directory: Path) -> None:
    with RunningPool(short_directory, app=APP) as pool:
        (worker,) = pool.broker.wait_workers(1)
        assert worker.hello is not None
        assert worker.hello.prefetch == 0
