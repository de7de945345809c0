"""The path of a live broker's socket under attack: what is put in its place gets nobody's jobs.

Those who are connected are served all the while, and once the path is free again the broker is back at it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults.bind_races import needs, open_directory, probing
from support.faults.intruder import Intruder
from support.other_user import UID
from support.stack import Stack
from support.waiting import wait_until

from stoker import BrokerUnreachableError, Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60),
    pytest.mark.skipif(bool(needs()), reason=needs()),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with open_directory() as directory, Stack(directory) as stack:
        (directory / "run").mkdir()
        stack.socket = str(directory / "run" / "broker.sock")
        stack.client.close()
        stack.client = Client(stack.socket)
        stack.start_broker()
        yield stack


@pytest.fixture(autouse=True)
def restored(stack: Stack) -> Iterator[None]:
    """After each test nothing is in the way any more, and the broker is back in its place."""
    yield
    Path(stack.socket).parent.chmod(0o755)
    if not answers(stack.socket) and os.path.lexists(stack.socket):
        os.unlink(stack.socket)
    wait_until(lambda: answers(stack.socket), "the broker is back at its path")


def answers(path: str) -> bool:
    client = Client(path, retry_s=0)
    try:
        return bool(client.status())
    except BrokerUnreachableError:
        return False
    finally:
        client.close()


class Place:
    """What lies at the path of the socket, and what the broker has said of it since the test began."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.path = stack.socket
        self._log = stack.directory / "broker.log"
        self._began = len(self._log.read_bytes())

    def wait_until_missed(self) -> str:
        """Until the broker has noticed that the path does not lead to it; what it says."""
        wait_until(lambda: "socket_lost" in self._said(), "the broker misses its socket", deadline_s=20)
        return self._said()

    def _said(self) -> str:
        return self._log.read_bytes()[self._began :].decode()


@pytest.fixture
def place(stack: Stack) -> Place:
    return Place(stack)


def test_link_in_its_place_stays_and_who_is_connected_is_served(place: Place) -> None:
    os.unlink(place.path)
    os.symlink("/run/somebody/else.sock", place.path)
    assert "is there already and is no socket" in place.wait_until_missed()
    assert place.stack.client.status()["socket"] == place.path
    assert os.readlink(place.path) == "/run/somebody/else.sock"


def test_another_user_who_listens_in_its_place_gets_no_jobs(place: Place) -> None:
    directory = Path(place.path).parent
    directory.chmod(0o777)
    with Intruder(place.path):
        directory.chmod(0o755)
        client = Client(place.path, retry_s=0)
        with pytest.raises(BrokerUnreachableError, match="which is not trusted"):
            client.enqueue("secret")
        client.close()
        place.wait_until_missed()
        assert os.lstat(place.path).st_uid == UID
        assert place.stack.client.status()["socket"] == place.path


def test_directory_that_is_opened_while_the_broker_runs_changes_nothing_for_the_socket(stack: Stack) -> None:
    report: dict[str, Any] = {}
    Path(stack.socket).parent.chmod(0o777)
    with probing(stack.socket, report):
        assert stack.client.status()["socket"] == stack.socket
    assert report == {
        "ends": {"EACCES": report["ends"]["EACCES"], "seen": report["ends"]["seen"]},
        "modes": [],
    }


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_broker_that_starts_shows_another_user_nothing(umask: int) -> None:
    report: dict[str, Any] = {}
    with open_directory() as directory, Stack(directory) as stack, probing(stack.socket, report):
        old = os.umask(umask)
        try:
            stack.start_broker()
        finally:
            os.umask(old)
        assert stack.client.status()
    assert set(report["ends"]) == {"ENOENT", "EACCES", "seen"}
    assert report["modes"] == []


MAKES = """
import os, sys
from stoker.broker.socket import ListeningSocket
os.umask(0)
ListeningSocket(sys.argv[1], mode=0o666).close()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_mode_is_set_before_the_bind_and_opened_before_anybody_can_connect(socket_path: str) -> None:
    trace = Path(socket_path).with_name("trace")
    strace = ["strace", "-o", str(trace), "-e", "trace=fchmod,bind,chmod,fchmodat,listen"]
    subprocess.run([*strace, sys.executable, "-c", MAKES, socket_path], check=True, timeout=30)
    calls = [line.partition("(")[0] for line in trace.read_text().splitlines() if "(" in line]
    assert [call.removesuffix("at") for call in calls if not call.startswith(("+", "-"))] == [
        "fchmod",
        "bind",
        "chmod",
        "listen",
    ]
