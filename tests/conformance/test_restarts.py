"""One suite for every client, over a real broker that is killed: nothing lost, nothing stored twice."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients import Connect
from support.stack import Stack
from support.waiting import wait_until

from stoker import Client, JobSpec

pytestmark = pytest.mark.slow

THREADS = 4
JOBS_EACH = 150


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack


def restart(stack: Stack) -> None:
    stack.kill_broker()
    stack.start_broker()


def test_enqueues_under_way_survive_a_killed_broker(connect: Connect, stack: Stack) -> None:
    numbers: dict[str, int] = {}

    def work(client: Client, name: int) -> None:
        for count in range(JOBS_EACH):
            handle = client.enqueue("k", id=f"{name}-{count}")
            numbers[handle.id] = handle.number

    with connect(retry_s=30) as client:
        threads = [threading.Thread(target=work, args=(client, name)) for name in range(THREADS)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(numbers) > JOBS_EACH, "some are stored")
        restart(stack)
        for thread in threads:
            thread.join(60)
        assert {job["id"]: job["number"] for job in client.jobs()} == numbers
    assert len(numbers) == THREADS * JOBS_EACH


def test_bulk_enqueue_survives_a_killed_broker(connect: Connect, stack: Stack) -> None:
    taken: list[int] = []
    killed = threading.Event()

    def source() -> Iterator[JobSpec]:
        for number in range(3000):
            if number == 2000:
                killed.wait(30)
            taken.append(number)
            yield JobSpec("k", id=f"job-{number}")

    def kill() -> None:
        wait_until(lambda: len(taken) == 2000, "most are taken")
        restart(stack)
        killed.set()

    with connect(retry_s=30) as client:
        killing = threading.Thread(target=kill)
        killing.start()
        handles = client.enqueue_many(source())
        killing.join(30)
        assert {job["id"]: job["number"] for job in client.jobs()} == {h.id: h.number for h in handles}
    assert len(handles) == 3000


def test_wait_goes_on_over_a_restart(connect: Connect, stack: Stack) -> None:
    states: list[str] = []
    with connect(retry_s=30) as client:
        handle = client.enqueue("k", delay_s=600)
        waiting = threading.Thread(target=lambda: states.append(handle.wait().state))
        waiting.start()
        restart(stack)
        handle.cancel()
        waiting.join(30)
    assert states == ["cancelled"]
