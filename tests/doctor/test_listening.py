"""The socket: what is at its path, who listens, and what the broker's own answer tells."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.scripted_broker import ScriptedBroker

from stoker.doctor.finding import Finding, Level, worst
from stoker.doctor.listening import Listening, ask, check_broker, check_socket, listening
from stoker.proto import limits, messages
from stoker.proto.errors import ForbiddenError, StokerError

UID = os.geteuid()


def last(path: str, found: Listening | None = None, uid: int = UID) -> Finding:
    """The finding about the socket itself; the one before it is about its directory."""
    return list(check_socket(path, uid, found or listening(path)))[-1]


def bound(path: str, backlog: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    if backlog is not None:
        listener.listen(backlog)
    return listener


def test_missing_socket_and_directory_are_notes(short_directory: Path) -> None:
    path = str(short_directory / "run" / "broker.sock")
    findings = list(check_socket(path, UID, listening(path)))
    assert [finding.level for finding in findings] == [Level.NOTE, Level.NOTE]
    assert not os.path.exists(os.path.dirname(path))


def test_who_listens_is_named(socket_path: str) -> None:
    with bound(socket_path, 1):
        finding = last(socket_path)
    assert finding.level is Level.OK
    assert f"pid {os.getpid()} of uid {UID} listens there" in finding.what


def test_socket_that_a_dead_broker_left_is_a_warning(socket_path: str) -> None:
    bound(socket_path, 1).close()
    finding = last(socket_path)
    assert (finding.level, finding.advice) == (Level.WARNING, "the next broker replaces it; start one")


def test_full_backlog_is_not_taken_for_a_dead_broker(socket_path: str) -> None:
    with bound(socket_path, 0), socket.socket(socket.AF_UNIX) as first:
        first.connect(socket_path)
        finding = last(socket_path)
    assert finding.level is Level.WARNING and "stopped or overloaded" in finding.what


OTHERS: list[Callable[[Path], object]] = [Path.touch, Path.mkdir, os.mkfifo]


@pytest.mark.parametrize("make", OTHERS)
def test_what_is_no_socket_is_an_error(socket_path: str, make: Callable[[Path], object]) -> None:
    make(Path(socket_path))
    finding = last(socket_path)
    assert finding.level is Level.ERROR and "is no socket" in finding.what


def test_socket_or_listener_of_another_user_is_an_error(socket_path: str) -> None:
    with bound(socket_path, 1):
        owned = last(socket_path, uid=UID + 1)
        heard = last(socket_path, Listening(7, UID + 1))
    assert (owned.level, heard.level) == (Level.ERROR, Level.ERROR)
    assert f"runs as uid {UID + 1}" in heard.what


def test_living_broker_of_another_user_is_not_to_be_removed(socket_path: str) -> None:
    with bound(socket_path, 1):
        alive = last(socket_path, uid=UID + 1)
    gone = last(socket_path, uid=UID + 1)
    assert "remove it" not in alive.advice and f"as uid {UID}" in alive.advice
    assert "remove it" in gone.advice


def test_unsafe_directory_is_an_error_with_the_right_flag(short_directory: Path) -> None:
    (short_directory / "run").mkdir()
    (short_directory / "run").chmod(0o777)
    path = str(short_directory / "run" / "broker.sock")
    first = next(iter(check_socket(path, UID, listening(path))))
    assert first.level is Level.ERROR and "--data" not in first.what


REPORT: dict[str, Any] = {
    "version": "0.1.0",
    "epoch": 7,
    "storage": {"full": False},
    "warnings": [],
    "data": "/d",
}


def test_broker_that_is_well_says_so(socket_path: str) -> None:
    with ScriptedBroker(socket_path, lambda _: messages.StatusReport(REPORT)):
        (finding,) = check_broker(ask(socket_path), "/d")
    assert finding == (Level.OK, "broker", "stoker 0.1.0 answers, epoch 7", "")


@pytest.mark.parametrize(
    ("report", "level", "word"),
    [
        ({**REPORT, "storage": {"full": True}}, Level.ERROR, "storage is full"),
        ({**REPORT, "warnings": ["an old job"]}, Level.WARNING, "an old job"),
        ({**REPORT, "draining": True}, Level.WARNING, "it drains"),
        ({**REPORT, "paused_all": True}, Level.WARNING, "all queues are paused"),
        (
            {**REPORT, "queues": {"a": {"paused": True}, "b": {}}},
            Level.NOTE,
            "paused queues, whose jobs wait: a",
        ),
        ({**REPORT, "data": "/elsewhere"}, Level.WARNING, "has its data in /elsewhere"),
        ({"storage": 7, "warnings": 7}, Level.OK, "stoker ? answers"),
        (StokerError("it is asleep"), Level.ERROR, "does not answer: it is asleep"),
        (ForbiddenError("no role"), Level.WARNING, "answers, but refuses to say how it is: no role"),
    ],
)
def test_what_the_broker_tells_of_itself_is_judged(report: Any, level: Level, word: str) -> None:
    findings = list(check_broker(report, "/d"))
    assert worst(findings) is level
    assert word in findings[0].what


WARNINGS = {
    "queue default: dead jobs that need a person: 3": "stoker kick",
    "queue default: no connected worker knows kind send": "start a pool whose app has it",
    "queue default: no connected worker knows kind command, for which a pool needs --commands": "--commands",
    "pool a: its last reload failed, and the old code goes on serving": "stoker reload",
    "pools a and b declare kind send differently": "load the same code",
    "of another release": "stoker status",
}


@pytest.mark.parametrize("warning", WARNINGS)
def test_each_warning_of_the_broker_comes_with_what_to_do(warning: str) -> None:
    finding = next(iter(check_broker({**REPORT, "warnings": [warning]}, None)))
    assert finding.what == warning and WARNINGS[warning] in finding.advice


def test_full_storage_comes_with_how_much_has_to_be_free(socket_path: str) -> None:
    storage = {"full": True, "low_water_bytes": limits.LOW_WATER_BYTES}
    finding = next(iter(check_broker({**REPORT, "storage": storage}, None)))
    assert "with 34MiB free, enqueues are taken again, 5 s after" in finding.advice


def test_many_paused_queues_are_counted() -> None:
    queues = {f"q{number}": {"paused": True} for number in range(9)}
    finding = next(iter(check_broker({**REPORT, "queues": queues}, None)))
    assert finding.what.endswith("q3, q4 and 4 more") and "stoker resume" in finding.advice


def test_lock_that_the_owner_may_not_write_is_an_error(socket_path: str) -> None:
    Path(f"{socket_path}.lock").touch(0o600)
    assert worst(check_socket(socket_path, UID, Listening())) is Level.NOTE
    if UID != 0:
        pytest.skip("only root can look with the eyes of another")
    os.chown(os.path.dirname(socket_path), UID + 1, -1)
    findings = list(check_socket(socket_path, UID + 1, Listening()))
    assert (findings[1].level, findings[1].advice) == (Level.ERROR, "chown it")


def test_broker_that_ends_before_it_answers_is_an_error(socket_path: str) -> None:
    said = ask(socket_path)
    assert isinstance(said, StokerError)
    assert worst(check_broker(said, "/d")) is Level.ERROR
