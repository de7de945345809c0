"""The end of one worker, in any way, concerns nobody else: not its siblings, not the broker, not their files."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pools import children_of
from support.stack import Stack
from support.waiting import wait_lines, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def replace(stack: Stack, pid: int, number: signal.Signals, workers: int) -> None:
    """End a worker by a signal, and wait until another has its place."""
    os.kill(pid, number)
    wait_until(lambda: pid not in pids_of(stack) and len(pids_of(stack)) == workers, f"{pid} is replaced")


def pids_of(stack: Stack) -> list[int]:
    return [worker["pid"] for worker in stack.workers() if worker["state"] in ("idle", "busy")]


def only_pid(stack: Stack) -> int:
    (pid,) = wait_until(lambda: pids_of(stack), "a worker")
    return pid


# --- files ------------------------------------------------------------------------------------------


def test_no_end_of_a_worker_touches_what_belongs_to_another_process(stack: Stack) -> None:
    stack.start_pool("leaving:app", 1, LEAVING_HOME=str(stack.directory), STOKER_POOL_RECYCLE_JOBS="3")
    (made,) = stack.directory.glob("made-at-import-*")
    before = [path.stat().st_ino for path in (Path(stack.socket), stack.data / "broker.lock", made)]
    for how in ("exit", "exit hard"):
        stack.client.enqueue("leave", [how]).wait(10)
    recycled = only_pid(stack)
    assert all(stack.client.enqueue("nothing").wait(10).is_done for _ in range(3))
    wait_until(lambda: recycled not in pids_of(stack), "it was recycled")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        replace(stack, only_pid(stack), number, workers=1)
    assert [path.stat().st_ino for path in (Path(stack.socket), stack.data / "broker.lock", made)] == before
    assert list(stack.directory.glob("exit-handler-*")) == []
    assert (stack.directory / "pool.log").read_text().count("half a line at import") == 1


# --- descriptors ------------------------------------------------------------------------------------


def sockets_of(pid: int) -> set[str]:
    found: set[str] = set()
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found.add(os.readlink(entry))
        except OSError:
            continue
    return {target for target in found if target.startswith("socket:")}


def holders_of(socket: str) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if os.access(f"/proc/{pid}/fd", os.R_OK) and socket in sockets_of(pid)]


def test_connection_of_a_worker_is_held_by_nobody_else_and_its_death_known_at_once(stack: Stack) -> None:
    stack.start_pool("leaving:app", 3)
    marks = stack.directory / "marks"
    marks.mkdir()
    job = stack.client.enqueue("hold_everything", [str(marks)], lease_s=60)
    wait_until((marks / "1").exists, "the job runs")
    holder = stack.holder_pid(job.id)
    for sibling in set(pids_of(stack)) - {holder}:
        replace(stack, sibling, signal.SIGTERM, workers=3)
    (connection,) = sockets_of(holder)
    assert holders_of(connection) == [holder]
    killed_at = time.monotonic()
    os.kill(holder, signal.SIGKILL)
    assert float(wait_lines(marks / "2", "it runs again")) - killed_at < 1


def test_descriptors_of_nobody_grow_with_the_deaths_of_workers(stack: Stack) -> None:
    def counts() -> list[int]:
        assert stack.broker is not None and stack.pool is not None
        pids = [
            stack.broker.pid,
            stack.pool.pid,
            *children_of(stack.pool.pid, "stoker-zygote"),
            *pids_of(stack),
        ]
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]

    stack.start_pool("leaving:app", 2)
    before = counts()
    for number in [signal.SIGKILL, signal.SIGTERM] * 10:
        assert stack.client.enqueue("nothing").wait(10).is_done
        replace(stack, pids_of(stack)[0], number, workers=2)
    wait_until(lambda: counts() == before, f"{before} again")


# --- crashes ----------------------------------------------------------------------------------------


def test_crash_costs_no_sibling_its_job_and_its_worker_is_replaced(stack: Stack) -> None:
    stack.start_pool("leaving:app", 4)
    marks = [stack.directory / f"mark-{number}" for number in range(3)]
    others = [stack.client.enqueue("sleep", [str(mark), 1.0]) for mark in marks]
    wait_until(lambda: all(mark.exists() for mark in marks), "three jobs run")
    before = pids_of(stack)
    stack.client.enqueue("follow_null").wait(10)
    wait_until(lambda: len(pids_of(stack)) == 4, "it is replaced", deadline_s=1)
    assert len(set(before) & set(pids_of(stack))) == 3
    ended = [(other.wait(10).state, stack.client.show(other.id)["attempt"]) for other in others]
    assert ended == [("done", 1)] * 3


def test_crash_is_on_record_and_in_the_logs_with_signal_pid_and_job(stack: Stack) -> None:
    stack.start_pool("leaving:app", 1)
    pid = only_pid(stack)
    crash = stack.client.enqueue("follow_null").wait(10)
    (row,) = stack.client.show(crash.id)["history"]
    assert (row["outcome"], row["signal"], row["reason"]) == ("crash", 11, "worker died (signal 11)")
    token = f"{row['token_epoch']}.{row['token_counter']}"
    said_by = {name: (stack.directory / f"{name}.log").read_text() for name in ("pool", "broker")}
    assert f"worker_exited pid={pid} signal=11 running={token}" in said_by["pool"]
    assert re.search(rf"job_dead kind=follow_null id={crash.id} .*\(signal 11\)", said_by["broker"])
