"""Going back to a snapshot: the very commands of docs/operations.md, without the service manager."""

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import sources
from support.stack import Stack

from stoker.broker.lasterror import LAST_ERROR
from stoker.proto.errors import JobNotFoundError, StokerError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGE = (sources.ROOT / "docs" / "operations.md").read_text()
USER = pwd.getpwuid(os.getuid()).pw_name


def commands(data: Path) -> list[str]:
    """The block of the manual, for this directory and this user."""
    (block,) = re.findall(r"To go back to one.*?\n\n((?:    .+\n)+)", PAGE)
    lines = [line.strip() for line in block.splitlines()]
    assert [line.split()[0] for line in (lines[0], lines[-1])] == ["systemctl", "systemctl"]
    group = str(os.getgid())
    return [
        line.replace("/var/lib/stoker", str(data))
        .replace("-o stoker -g stoker", f"-o {USER} -g {group}")
        .replace("stoker doctor", f"{sys.executable} -m stoker.cli.main doctor --socket {data}/none")
        for line in lines[1:-1]
    ]


def restore(stack: Stack) -> None:
    script = "\n".join(("set -e", *commands(stack.data)))
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def stop(stack: Stack) -> None:
    for process in (stack.pool, stack.broker):
        assert process is not None
        process.terminate()
        assert process.wait(30) == 0


def test_jobs_are_as_they_were_and_what_came_since_is_asked_for_again(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("echo", [1], id="before")
        stack.client.snapshot("daily")
        stack.client.enqueue("echo", [2], id="since")
        stack.start_pool("results:app", 1)
        assert stack.client.wait("before", timeout_s=30).state == "done"
        stop(stack)
        restore(stack)
        stack.start_broker()
        assert stack.client.show("before")["state"] == "ready"
        with pytest.raises(JobNotFoundError):
            stack.client.show("since")
        assert [stack.client.enqueue("echo", [n], id=id).id for n, id in ((1, "before"), (2, "since"))]
        stack.start_pool("results:app", 1)
        assert stack.client.wait("since", timeout_s=30).state == "done"


def test_snapshot_takes_the_place_of_files_that_were_lost(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.enqueue("echo", [1], id="before")
        stack.client.snapshot("daily")
        (stack.data / "journal.db").unlink()
        assert stack.broker is not None and stack.broker.wait(15) == 74
        assert (stack.data / LAST_ERROR).exists()
        restore(stack)
        stack.start_broker()
        assert stack.client.show("before")["state"] == "ready"


def test_tokens_grow_over_a_way_back(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        stack.client.snapshot("daily")
        epochs: list[int] = []
        for _ in range(2):
            stack.kill_broker()
            restore_clean(stack)
            stack.start_broker()
            epochs.append(stack.client.status()["epoch"])
        assert 1_000_000 < epochs[0] < epochs[1]


def restore_clean(stack: Stack) -> None:
    """Once more: what was kept of the first time is looked at."""
    subprocess.run(["rm", "-rf", str(stack.data / "before")], check=True)
    restore(stack)


def test_log_that_stays_behind_is_refused(short_directory: Path) -> None:
    with Stack(short_directory) as stack:
        stack.start_broker()
        copy = stack.client.snapshot("daily").path
        stack.client.enqueue("echo", [1])
        stack.kill_broker()
        (stack.data / "journal.db").unlink()
        os.rename(copy, stack.data / "journal.db")
        with pytest.raises((AssertionError, StokerError), match="ended with 65"):
            stack.start_broker()
