"""What jobs carry stays in the journal: not in logs, not in the lists of processes, not in a core dump."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.other_user import GID, ROOT_ONLY, UID, python_for_all
from support.stack import Stack
from support.waiting import wait_until

from stoker import Client, StokerError

pytestmark = pytest.mark.slow

SECRET = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A broker and a pool that have met the secret in every way a job can end."""
    with Stack(tmp_path_factory.mktemp("secrets")) as stack:
        stack.start_broker()
        stack.start_pool("trials:app", 1)
        client, marks = stack.client, str(stack.directory / SECRET)
        client.enqueue("unknown", id="waits", payload=SECRET.encode(), headers={"h": SECRET})
        ended = [
            client.enqueue("noop", [SECRET], attempts_max=1),
            client.enqueue("fail", [marks], attempts_max=1),
            client.enqueue("suicide", [marks], attempts_max=1),
            client.enqueue("leave", [SECRET]),
        ]
        for job in ended:
            job.wait(timeout_s=20)
        client.cancel("waits")
        yield stack


def test_logs_hold_no_payload_argument_or_header(stack: Stack) -> None:
    logs = [path.read_text() for path in stack.directory.glob("*.log")]
    assert len(logs) == 2
    # What a handler prints, and the words of its errors, are its own; these say nothing of their arguments.
    assert [log for log in logs if SECRET in log] == []


def test_no_process_shows_a_payload_in_its_title_or_environment(stack: Stack) -> None:
    assert stack.broker is not None and stack.pool is not None
    pids = [stack.broker.pid, stack.pool.pid, *(worker["pid"] for worker in stack.workers())]
    for pid in pids:
        for name in ("cmdline", "comm", "environ"):
            assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


def test_broker_leaves_no_core_dump(stack: Stack) -> None:
    assert stack.broker is not None
    lines = Path(f"/proc/{stack.broker.pid}/limits").read_text().splitlines()
    (core,) = (line.split() for line in lines if line.startswith("Max core file size"))
    assert core[4:6] == ["0", "0"]


def test_state_is_for_its_owner_alone(stack: Stack) -> None:
    stack.client.snapshot("copy")
    files = [stack.data, *stack.data.rglob("*")]
    assert len(files) > 4
    assert [path for path in files if path.stat().st_mode & 0o077] == []


@ROOT_ONLY
def test_memory_of_a_broker_is_not_to_be_read_by_other_processes_of_its_user(short_directory: Path) -> None:
    short_directory.chmod(0o755)
    home = short_directory / "home"
    home.mkdir()
    os.chown(home, UID, GID)
    arguments = ["--socket", str(home / "broker.sock"), "--data", str(home / "data"), "--config", os.devnull]
    command = [*python_for_all(), "-m", "stoker.cli.main", "broker", *arguments]
    with subprocess.Popen(command, user=UID, group=GID, extra_groups=[], cwd="/") as broker:
        try:
            wait_until(lambda: serves(home / "broker.sock"), "the broker serves", deadline_s=20)
            # The kernel gives the files of a process that may be dumped to its user, and those of others to root.
            assert os.stat(f"/proc/{broker.pid}/mem").st_uid == 0
            assert os.stat(f"/proc/{broker.pid}").st_uid == UID
        finally:
            broker.terminate()


def serves(path: Path) -> bool:
    client = Client(str(path), retry_s=0)
    try:
        return bool(client.status())
    except StokerError:
        return False
    finally:
        client.close()
