"""Messages to a service manager: sent if there is one, silent if not."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.broker.notify import Notifier


@pytest.fixture
def manager(short_directory: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(short_directory / "notify"))
        receiver.setblocking(False)
        yield receiver


def test_state_reaches_the_manager(manager: socket.socket) -> None:
    Notifier({"NOTIFY_SOCKET": manager.getsockname()}).send("READY=1")
    assert manager.recv(100) == b"READY=1"


def test_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0stoker-test-{os.getpid()}")
        Notifier({"NOTIFY_SOCKET": f"@stoker-test-{os.getpid()}"}).send("STOPPING=1")
        assert receiver.recv(100) == b"STOPPING=1"


def test_no_manager_and_a_dead_one_are_no_errors(short_directory: Path) -> None:
    Notifier({}).send("READY=1")
    Notifier({"NOTIFY_SOCKET": str(short_directory / "nobody")}).send("READY=1")


@pytest.mark.parametrize(
    ("environ", "watchdog_ms"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "10000000"}, 5000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 5000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_watchdog_is_fed_at_half_its_period_if_it_is_ours(environ: dict[str, str], watchdog_ms: int) -> None:
    assert Notifier(environ).watchdog_ms == watchdog_ms
