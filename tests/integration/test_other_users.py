"""One broker and several users: who may do what by the configuration, and a pool that gives root up."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.other_user import GID, OTHER_UID, ROOT_ONLY, UID, python_as, python_for_all, run_as
from support.waiting import wait_until

from stoker import Client, StokerError
from stoker.config.people import OVERFLOW_ID

pytestmark = [pytest.mark.slow, ROOT_ONLY]

GROUP = 54330
"""Of the socket; whoever is to connect at all is in it."""

CONFIG = f"""
[broker]
socket_mode = "0660"
socket_group = {GROUP}
[access]
submit = [{OTHER_UID}]
work = [{UID}]
admin = ["@{GID}"]
"""

TASKS = """
import os
from stoker import App
app = App()

@app.job()
def who():
    try:
        os.setuid(0)
    except PermissionError:
        return [os.getuid(), os.getgid(), os.getgroups(), os.environ["HOME"]]
"""


class Host:
    """A directory that others may enter, and root's broker in it."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        self.directory = directory
        self.socket = str(directory / "run" / "broker.sock")
        self.log = directory / "log"
        self.client = Client(self.socket)
        (directory / "stoker.toml").write_text(CONFIG)
        (directory / "tasks.py").write_text(TASKS)

    def spawn(self, python: list[str], *arguments: str) -> subprocess.Popen[bytes]:
        command = [*python, "-m", "stoker.cli.main", *arguments, "--socket", self.socket]
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, cwd=self.directory, stderr=log, start_new_session=True)

    def answers(self) -> bool:
        try:
            return bool(self.client.status())
        except StokerError:
            return False

    def has_pool(self) -> bool:
        return self.answers() and bool(self.workers())

    def workers(self) -> list[Any]:
        return [worker for worker in self.client.status()["workers"] if worker["state"] == "idle"]


@pytest.fixture
def host(short_directory: Path) -> Iterator[Host]:
    host = Host(short_directory)
    arguments = ("broker", "--data", str(short_directory / "data"), "--config", "stoker.toml")
    process = host.spawn([sys.executable], *arguments)
    try:
        wait_until(host.answers, f"the broker answers: {host.log}", deadline_s=20)
        yield host
    finally:
        host.client.close()
        process.terminate()
        process.wait(20)


ASKS = """
import socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(20)
    peer.connect(sys.argv[1])
    file = peer.makefile("rwb")
    for request in sys.argv[2:]:
        file.write(request.encode() + b"\\n")
        file.flush()
        print(file.readline().decode().strip())
"""

ENQUEUE = json.dumps({"op": "enqueue", "id": "a", "kind": "who", "payload": "x"})
PAUSE = json.dumps({"op": "pause", "queue": "mail"})
HELLO_WORK = json.dumps({"op": "hello", "version": 1, "role": "work", "kinds": ["who"], "slots": 1})


def verdicts(host: Host, uid: int, gid: int, groups: list[int]) -> list[str]:
    """What becomes of an enqueue, a pause and a worker's hello of this user: `ok` or the refusal."""
    said: list[str] = []
    for request in (ENQUEUE, PAUSE, HELLO_WORK):
        answer = json.loads(python_as(uid, gid, ASKS, host.socket, request, groups=groups))
        said.append("ok" if answer["ok"] else answer["error"])
    return said


@pytest.mark.parametrize(
    ("uid", "groups", "said"),
    [
        (OTHER_UID, [GROUP], ["ok", "forbidden", "forbidden"]),
        (UID, [GROUP], ["forbidden", "forbidden", "ok"]),
        (OTHER_UID + 1, [GROUP, GID], ["ok", "ok", "forbidden"]),
    ],
)
def test_each_user_may_do_what_the_configuration_gives(
    host: Host, uid: int, groups: list[int], said: list[str]
) -> None:
    assert verdicts(host, uid, OTHER_UID, groups) == said


CLIENT = """
import sys
from stoker import Client, RefusedError
try:
    Client(sys.argv[1]).enqueue("who")
    print("ok")
except RefusedError as error:
    print(error.code)
"""


@pytest.mark.parametrize(("uid", "said"), [(OTHER_UID, "ok"), (OTHER_UID + 1, "forbidden")])
def test_client_of_another_user_is_served_or_told_that_it_may_not(host: Host, uid: int, said: str) -> None:
    assert python_as(uid, OTHER_UID, CLIENT, host.socket, groups=[GROUP]) == f"{said}\n"


def test_who_is_not_in_the_group_of_the_socket_does_not_get_to_the_broker(host: Host) -> None:
    script = ASKS.replace("peer.connect(sys.argv[1])", "print(peer.connect_ex(sys.argv[1])); sys.exit()")
    assert python_as(OTHER_UID, OTHER_UID, script, host.socket) == "13\n"


def test_pool_runs_its_app_as_the_user_it_was_given(host: Host) -> None:
    # The pool connects as this user with this group, which is the socket's here.
    process = host.spawn(
        python_for_all(), "pool", "tasks:app", "--workers", "1", "--user", str(UID), "--group", str(GROUP)
    )
    try:
        wait_until(host.workers, f"the pool is there: {host.log}", deadline_s=30)
        handle = host.client.enqueue("who")
        assert handle.wait(timeout_s=30).result == [UID, GROUP, [GROUP], "/"]
        assert os.stat(f"/proc/{process.pid}").st_uid == UID
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_pool_of_another_user_keeps_no_output_in_files_and_starts_nothing(host: Host, tmp_path: Path) -> None:
    users = ("--user", str(UID), "--group", str(GROUP))
    data = ("--data", str(host.directory / "data"))
    process = host.spawn(python_for_all(), "pool", "tasks:app", "--workers", "1", "--commands", *users, *data)
    try:
        wait_until(lambda: len(host.workers()) == 2, f"the pool is there: {host.log}", deadline_s=30)
        kept = {"keep_output_bytes": 5000}
        outcome = host.client.enqueue("command", [["touch", str(tmp_path / "mark")]], kept).wait(timeout_s=30)
        assert (outcome.state, outcome.outcome) == ("dead", "permanent")
        assert "run it as the user of its broker" in outcome.reason
        assert list((host.directory / "data" / "output").iterdir()) == []
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_pool_that_became_another_user_still_ends_with_who_started_it(short_directory: Path) -> None:
    host = Host(short_directory)
    flags = ("--workers", "1", "--user", str(UID), "--group", str(GROUP))
    places = ("--data", str(short_directory / "data"), "--config", "stoker.toml")
    process = host.spawn(python_for_all(), "up", "tasks:app", *flags, *places)
    try:
        wait_until(host.has_pool, f"the pool is there: {host.log}", deadline_s=30)
        pids = [worker["pid"] for worker in host.workers()]
        assert [os.stat(f"/proc/{pid}").st_uid for pid in pids] == [UID]
    finally:
        process.kill()
        process.wait(10)
        host.client.close()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "workers end", deadline_s=30)


def test_broker_says_when_the_files_keep_out_whom_the_configuration_lets_in(short_directory: Path) -> None:
    short_directory.chmod(0o700)
    (short_directory / "stoker.toml").write_text(f"[access]\nsubmit = [{OTHER_UID}]\n")
    host_log = short_directory / "log"
    arguments = ("--socket", "broker.sock", "--data", "data", "--config", "stoker.toml")
    command = [sys.executable, "-m", "stoker.cli.main", "broker", *arguments]
    with open(host_log, "wb") as log, subprocess.Popen(command, cwd=short_directory, stderr=log) as process:
        try:
            wait_until(lambda: "ready" in host_log.read_text(), "the broker is up", deadline_s=20)
        finally:
            process.terminate()
    assert "socket_closed_to_others mode=0600" in host_log.read_text()


def test_nobody_cannot_run_a_broker_and_is_told_to_be_somebody(short_directory: Path) -> None:
    short_directory.chmod(0o777)
    arguments = ["broker", "--socket", "run/broker.sock", "--data", "data", "--config", "/dev/null"]
    command = [*python_for_all(), "-m", "stoker.cli.main", *arguments]
    ran = run_as(OVERFLOW_ID, OVERFLOW_ID, command, cwd=short_directory)
    assert ran.returncode == 73
    assert "uid 65534 (nobody)" in ran.stderr
    assert "use another user" in ran.stderr
