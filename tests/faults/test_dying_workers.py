"""Workers that die by every signal, and pools whose workers never live: each is told, none costs much."""

import os
import signal
import time
from pathlib import Path

import pytest
from support.pools import RunningPool
from support.stack import Stack
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

DEADLY = ("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPIPE", "SIGXCPU", "SIGHUP")
STATUSES = (0, 1, 77)

WATCHED_S = 2.0
CPU_SHARE_MAX = 0.05
"""A busy loop takes all of a processor; that of a pool at rest is measured in hundredths of a second."""

NEVER_UP = """
    @app.on_start
    def hook():
        raise RuntimeError("no database")
"""


def test_end_by_each_signal_is_a_crash_that_names_it(stack: Stack) -> None:
    # One worker for each: a slot whose workers die one after the other waits longer and longer.
    stack.start_pool("dying:app", len(DEADLY))
    jobs = {name: stack.client.enqueue("die_by", [name]) for name in DEADLY}
    for name, job in jobs.items():
        outcome = job.wait(20)
        (row,) = stack.client.show(outcome.id)["history"]
        found = (outcome.state, row["outcome"], row["signal"])
        assert found == ("dead", "crash", signal.Signals[name]), name
    assert stack.client.enqueue("pid").result(20)


def test_end_by_each_status_is_a_crash_that_names_it(stack: Stack) -> None:
    stack.start_pool("dying:app", len(STATUSES))
    jobs = {status: stack.client.enqueue("leave_with", [status]) for status in STATUSES}
    for status, job in jobs.items():
        outcome = job.wait(20)
        (row,) = stack.client.show(outcome.id)["history"]
        assert (outcome.state, row["outcome"], row["status"]) == ("dead", "crash", status)


def cpu_s(pid: int) -> float:
    """What a process and its children that live have used, and those it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_s = sum(int(each) for each in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own_s + sum(cpu_s(int(child)) for child in children)


def test_pool_whose_workers_never_come_up_costs_next_to_nothing(short_directory: Path) -> None:
    with RunningPool(short_directory, app=NEVER_UP, workers=2) as pool:
        wait_until(lambda: pool.said().count("crash_loop") >= 2, "both slots wait", deadline_s=60)
        before_s, until_s = cpu_s(pool.process.pid), time.monotonic() + WATCHED_S
        wait_until(lambda: time.monotonic() >= until_s, "the time is over")
        used_s = cpu_s(pool.process.pid) - before_s
        assert used_s < CPU_SHARE_MAX * WATCHED_S
