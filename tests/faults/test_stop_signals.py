"""TERM and INT to workers while jobs are pushed to them: each job runs once, none is charged or stranded."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from support.stack import Stack
from support.waiting import wait_until

from stoker import JobHandle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

JOBS_A_ROUND = 5


def terminate_one(stack: Stack, random: Random) -> bool:
    """TERM or INT to some worker that is there; whether there was one."""
    pids = [worker["pid"] for worker in stack.workers() if worker["state"] in ("idle", "busy")]
    if pids:
        # One may have ended since.
        with suppress(ProcessLookupError):
            os.kill(random.choice(pids), random.choice((signal.SIGTERM, signal.SIGINT)))
    return bool(pids)


def begun(marks: Path) -> list[str]:
    """The job of every start."""
    return [line.split()[1] for line in marks.read_text().splitlines() if line.startswith("start ")]


def test_signal_at_any_moment_strands_and_charges_no_job(
    stack: Stack, seed: int, pytestconfig: pytest.Config
) -> None:
    rounds, random = 2 * int(pytestconfig.getoption("--rounds") or 1), Random(seed)
    stack.start_pool("trials:app", 4)
    marks, jobs = stack.directory / "marks", list[JobHandle]()
    for _ in range(rounds):
        naps_s = [random.uniform(0, 0.01) for _ in range(JOBS_A_ROUND)]
        jobs += [stack.client.enqueue("run", [str(marks), nap_s]) for nap_s in naps_s]
        wait_until(lambda: terminate_one(stack, random), "a worker")
    # The lease is a minute, so that one which was stranded would not be done by then.
    assert {job.wait(timeout_s=30).state for job in jobs} == {"done"}
    assert sorted(begun(marks)) == sorted(job.id for job in jobs)
    assert {stack.client.show(job.id)["charged"] for job in jobs} == {0}
    assert (stack.directory / "pool.log").read_text().count("worker_exited") >= rounds // 4
