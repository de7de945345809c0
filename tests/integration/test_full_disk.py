"""A real disk that fills up: enqueues are refused in time, everything else goes on, and all is kept."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.small_disk import MOUNTING
from support.small_disk import small_disk as mounted
from support.stack import Stack
from support.waiting import wait_until

from stoker.proto.errors import RefusedError, StorageFullError

pytestmark = [pytest.mark.slow, MOUNTING]

DISK_MIB = 96
PAYLOAD = b"x" * 500_000


@pytest.fixture
def small_disk(short_directory: Path) -> Iterator[Path]:
    """A file system of its own, gone at the end."""
    with mounted(short_directory / "disk", f"{DISK_MIB}M") as place:
        yield place


@pytest.fixture
def stack(short_directory: Path, small_disk: Path) -> Iterator[Stack]:
    """A broker whose state directory is on the small disk."""
    with Stack(short_directory) as stack:
        stack.data = small_disk / "data"
        stack.start_broker()
        # The first survey has seen the disk.
        wait_until(lambda: stack.client.status()["storage"]["free_bytes"], "a survey")
        yield stack


def fill(stack: Stack) -> list[str]:
    """Enqueue as fast as one client can until the broker says that it is enough; the ids it took."""
    taken: list[str] = []
    with pytest.raises(StorageFullError):
        for _ in range(DISK_MIB * 4):
            taken.append(stack.client.enqueue("noop", payload=PAYLOAD).id)
    return taken


def test_enqueues_are_refused_in_time_and_the_rest_goes_on(stack: Stack) -> None:
    taken = fill(stack)
    assert len(taken) > 10
    assert stack.client.cancel(taken[0]) == "cancelled"
    stack.client.pause("default")
    with pytest.raises(RefusedError):
        stack.client.enqueue("noop", payload=b"[]")
    stack.client.resume("default")
    stack.start_pool("trials:app", 2)
    assert stack.client.wait(taken[1], timeout_s=30).state in ("done", "dead")


def test_full_disk_survives_a_kill_and_takes_jobs_again_once_there_is_room(
    stack: Stack, small_disk: Path
) -> None:
    taken = fill(stack)
    stack.kill_broker()
    stack.start_broker()
    assert stack.queue()["ready"] == len(taken)
    subprocess.run(["mount", "-o", f"remount,size={4 * DISK_MIB}M", str(small_disk)], check=True)

    def takes_one() -> bool:
        try:
            return bool(stack.client.enqueue("noop", payload=PAYLOAD).id)
        except StorageFullError:
            return False

    wait_until(takes_one, "a job is taken again", deadline_s=20)


def test_disk_filled_by_somebody_else_still_takes_acks(stack: Stack, small_disk: Path) -> None:
    job = stack.client.enqueue("run", [str(stack.directory / "marks"), 1.0])
    stack.start_pool("trials:app", 1)
    hog = small_disk / "hog"
    with open(hog, "wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"y" * 65536)
            file.flush()
    assert job.wait(timeout_s=30).state == "done"
    assert stack.client.show(job.id)["history"][0]["outcome"] == "ok"
    stack.kill_broker()
    stack.start_broker()
    assert stack.client.show(job.id)["state"] == "done"
