"""The wall clock is set under a real broker, and time goes on while its host is asleep."""

import shutil
import subprocess
from pathlib import Path

import pytest
from support.faults.clock_steps import clock_steps
from support.faults.slept import SLEPT_S
from support.stack import Stack
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

STEPS = 5


def test_set_clock_moves_neither_leases_nor_backoff_and_dates_come_once(seed: int) -> None:
    tally = clock_steps(seed, STEPS)
    assert tally.violations == []
    assert tally.counts["steps"] >= STEPS


def test_leases_by_the_wall_clock_are_found_out() -> None:
    assert clock_steps(1, 2 * STEPS, "support.faults.broken.wall_time:main").violations


def time_namespace_is_missing() -> str:
    """Why no process can be given another boot clock here."""
    tool = shutil.which("unshare")
    if tool is None:
        return "unshare is not installed (Debian: util-linux)"
    tried = subprocess.run([tool, "-T", "--boottime", "1", "true"], check=False, capture_output=True)
    return "" if tried.returncode == 0 else "no time namespace may be made here"


class SleptStack(Stack):
    """Its broker runs as after a suspend of the host: the boot clock is ahead, the monotonic is not."""

    broker_call = "support.faults.slept:main"


@pytest.mark.skipif(bool(time_namespace_is_missing()), reason=time_namespace_is_missing() or "-")
def test_delay_goes_on_while_the_host_is_asleep(short_directory: Path) -> None:
    with Stack(short_directory) as before:
        before.start_broker()
        before.client.enqueue("nobody", delay_s=SLEPT_S - 60)
    with SleptStack(short_directory) as after:
        after.start_broker()
        wait_until(lambda: after.queue().get("ready") == 1, "the job is due")
