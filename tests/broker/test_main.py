"""The broker as a program: start, refusals to start with their exit codes, the end, and coming back."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.listening import listens
from support.shell import LogLines
from support.waiting import wait_until

from stoker.broker.files import BALLAST, JOURNAL, LOCK
from stoker.broker.journal import Journal, JournalBrokenError, Recovered
from stoker.broker.lasterror import read_last_error
from stoker.broker.main import serve_to_the_end
from stoker.broker.memory import MemoryJournal
from stoker.config.exits import Exit
from stoker.config.settings import BrokerSettings
from stoker.proto.statefiles import OUTPUT

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from stoker.broker.main import main
from stoker.config.settings import BrokerSettings
sys.exit(main(BrokerSettings(socket=sys.argv[1], data=sys.argv[2])))
"""


class Places:
    """Where a test's broker lives."""

    def __init__(self, directory: Path) -> None:
        self.socket = str(directory / "broker.sock")
        self.data = directory / "data"
        self.log = directory / "broker.log"

    def start(self, *, ready: bool = True) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, self.socket, str(self.data)]
        with open(self.log, "ab") as log:
            process = subprocess.Popen(command, stderr=log)
        if ready:
            wait_until(lambda: self.answers(process), "the broker answers", deadline_s=20)
        return process

    def settings(self) -> BrokerSettings:
        return BrokerSettings(socket=self.socket, data=str(self.data))

    def answers(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self.log.read_text()
        try:
            return bool(self.ask({"op": "status"})["ok"])
        except OSError:
            return False

    def ask(self, *requests: dict[str, Any]) -> dict[str, Any]:
        """JSON lines to the broker; the last answer."""
        answer: dict[str, Any] = {}
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(3)
            client.connect(self.socket)
            file = client.makefile("rwb")
            for request in requests:
                file.write(json.dumps(request).encode() + b"\n")
                file.flush()
                answer = json.loads(file.readline())
        return answer

    def enqueue(self, id: str, payload: str = "x") -> dict[str, Any]:
        return self.ask({"op": "enqueue", "id": id, "kind": "send", "payload": payload})

    def state(self, id: str) -> str:
        return str(self.ask({"op": "show", "id": id})["job"]["state"])


@pytest.fixture
def places(short_directory: Path) -> Places:
    return Places(short_directory)


@contextmanager
def broker(places: Places) -> Generator[subprocess.Popen[bytes]]:
    """A broker that serves while the block runs, and is killed after it if it still does."""
    process = places.start()
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_ends_cleanly(places: Places, number: signal.Signals) -> None:
    with broker(places) as process:
        places.enqueue("a")
        process.send_signal(number)
        assert process.wait(10) == Exit.OK
    assert not os.path.lexists(places.socket)
    assert not places.data.joinpath(f"{JOURNAL}-wal").exists()


def test_what_was_confirmed_is_there_after_sigkill(places: Places) -> None:
    with broker(places) as process:
        places.enqueue("a")
        process.kill()
        process.wait(10)
    with broker(places):
        assert places.state("a") == "ready"
        assert places.ask({"op": "status"})["status"]["epoch"] == 2


def test_second_broker_on_the_directory_is_refused_and_the_first_goes_on(places: Places) -> None:
    with broker(places):
        second = places.start(ready=False)
        assert second.wait(10) == Exit.OWNED
        assert str(places.data / LOCK) in places.log.read_text()
        assert places.enqueue("a")["ok"]


def test_second_broker_at_the_socket_is_refused(places: Places, short_directory: Path) -> None:
    with broker(places):
        other = Places(short_directory)
        other.data = short_directory / "other"
        assert other.start(ready=False).wait(10) == Exit.OWNED
        assert places.enqueue("a")["ok"]


def run(places: Places) -> tuple[int, list[str]]:
    """A broker in this process, for starts that are refused."""
    log = LogLines()
    return serve_to_the_end(places.settings(), log), log.lines


def test_file_that_is_no_journal_is_refused_and_left_alone(places: Places) -> None:
    places.data.mkdir(mode=0o700)
    journal = places.data / JOURNAL
    journal.write_bytes(b"precious" * 1000)
    code, lines = run(places)
    assert code == Exit.DATA_REFUSED
    assert str(journal) in lines[0]
    assert journal.read_bytes() == b"precious" * 1000
    written = read_last_error(str(places.data))
    assert written is not None and str(journal) in written.message


def test_fifo_in_the_place_of_the_ballast_is_refused_before_anything_opens_it(places: Places) -> None:
    places.data.mkdir(mode=0o700)
    os.mkfifo(places.data / BALLAST)
    code, lines = run(places)
    assert code == Exit.DATA_REFUSED
    assert f"{places.data / BALLAST}: is a FIFO, not a file; move it away" in lines[0]
    assert not (places.data / JOURNAL).exists()


def test_file_in_place_of_the_directory_of_outputs_keeps_no_broker_from_starting(places: Places) -> None:
    places.data.mkdir(mode=0o700)
    (places.data / OUTPUT).touch()
    with broker(places):
        assert "no_output_directory" in places.log.read_text()
    assert (places.data / OUTPUT).is_file()


def test_path_that_holds_a_file_is_refused(places: Places) -> None:
    Path(places.socket).write_text("precious")
    code, lines = run(places)
    assert code == Exit.CANNOT_CREATE
    assert places.socket in lines[0]


def test_directory_that_others_may_change_is_refused(places: Places) -> None:
    places.data.mkdir()
    places.data.chmod(0o777)
    code, lines = run(places)
    assert code == Exit.CANNOT_CREATE
    assert str(places.data) in lines[0]


def test_damage_that_was_found_is_kept_when_the_next_start_is_refused_for_something_else(
    places: Places,
) -> None:
    with broker(places):
        places.enqueue("a")
    journal = places.data / JOURNAL
    places.data.joinpath(f"{JOURNAL}-wal").unlink()
    journal.write_bytes(journal.read_bytes()[:8192])
    assert run(places)[0] == Exit.DATA_REFUSED
    journal.write_bytes(b"")
    assert run(places)[0] == Exit.DATA_REFUSED
    error = read_last_error(str(places.data))
    assert error is not None and "has zero bytes" in error.message and "is damaged" in error.damage


def test_refused_start_gives_everything_back(places: Places) -> None:
    Path(places.socket).write_text("precious")
    run(places)
    Path(places.socket).unlink()
    with broker(places):
        assert places.enqueue("a")["ok"]


def test_disk_limit_refuses_enqueues_keeps_the_broker_and_passes_by_itself(places: Places) -> None:
    with broker(places) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (8 * 2**20, resource.RLIM_INFINITY))
        accepted = fill(places)
        assert places.ask({"op": "status"})["status"]["storage"]["full"]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: places.enqueue("after")["ok"], "enqueues are taken again", deadline_s=20)
        assert all(places.state(id) == "ready" for id in accepted)


def fill(places: Places) -> list[str]:
    """Enqueue until the storage is full; the ids that were confirmed."""
    accepted: list[str] = []
    for number in range(60):
        try:
            answer = places.enqueue(f"fill-{number}", "x" * 500_000)
        except TimeoutError:
            return accepted
        if not answer["ok"]:
            assert answer["error"] == "storage_full"
            return accepted
        accepted.append(f"fill-{number}")
    raise AssertionError("the limit was never reached")


class BreakingJournal(MemoryJournal):
    """Breaks at its second commit, after the data was down: nobody must be told."""

    def load(self, *, boot_id: str, boot_ms: int, wall_ms: int) -> Recovered:
        recovered = super().load(boot_id=boot_id, boot_ms=boot_ms, wall_ms=wall_ms)
        self.fail_commit(2, JournalBrokenError, stored=True)
        return recovered


class UnclosableJournal(MemoryJournal):
    def close(self) -> None:
        super().close()
        raise JournalBrokenError("disk: EIO, while folding in the log")


def open_unclosable(_directory: str, _settings: BrokerSettings, _is_suspect: bool) -> Journal:
    return UnclosableJournal()


def test_storage_error_of_the_last_moment_is_no_clean_end(places: Places) -> None:
    def stop() -> None:
        wait_until(lambda: listens(places.socket), "the broker listens")
        assert places.enqueue("a")["ok"]
        os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(stop)
        code = serve_to_the_end(places.settings(), LogLines(), open_journal=open_unclosable)
        done.result()
    error = read_last_error(str(places.data))
    assert code == Exit.STORAGE
    assert error is not None and "EIO" in error.message and not error.recovered_at_ms


def open_breaking(_directory: str, _settings: BrokerSettings, _is_suspect: bool) -> Journal:
    return BreakingJournal()


def test_storage_error_ends_the_broker_with_its_own_code_and_is_written_down(places: Places) -> None:
    answers: list[object] = []

    def client() -> None:
        wait_until(lambda: listens(places.socket), "the broker listens")
        answers.append(places.enqueue("a")["ok"])
        # No answer at all: an end of file is no line of JSON.
        with pytest.raises(json.JSONDecodeError):
            places.enqueue("b")

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(client)
        code = serve_to_the_end(places.settings(), LogLines(), open_journal=open_breaking)
        done.result()
    error = read_last_error(str(places.data))
    assert (code, answers) == (Exit.STORAGE, [True])
    assert error is not None and error.exit_word == "STORAGE"
