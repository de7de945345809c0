"""Races of two to eight brokers for one state directory, or for one socket.

They come to the directory by its own name, through a directory that is a symbolic link, or by a bind
mount; before most races the broker that served was killed, so that its log is there to be taken in, and
a worker lives on that still holds a job. Judged: one serves, all others are gone within a second with
the code that says why, the epoch grew by one, every acknowledged job is there, and the worker's job is
still its own.
"""

import json
import os
import random
import select
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
from support.faults.crowd import frame
from support.faults.spawner import Spawned, Spawner
from support.proof.harness import Harness, Tally
from support.waiting import wait_until

from stoker import Client
from stoker.config.exits import Exit
from stoker.proto.errors import StokerError
from stoker.proto.messages import ANSWER, Hello
from stoker.proto.ops import BY_MESSAGE
from stoker.proto.work import Ack
from stoker.worker.process import identity

RACERS_MAX = 8
START_S = 20.0
LOSER_S = 1.0
DECIDED_S = 4.0
"""A loser that runs longer is none: late as the machine may be, it serves."""

RACER = "support.faults.racer:main"
WAYS = ("itself", "by a symbolic link", "by a bind mount")


def run(seed: int, amount: int) -> Tally:
    """So many races, one after the other on one directory."""
    return run_with(RACER, seed, amount)


def run_with(call: str, seed: int, amount: int) -> Tally:
    """The same with brokers that may be broken ones."""
    with (
        tempfile.TemporaryDirectory(prefix="stk-", dir="/tmp") as directory,
        Spawner() as spawner,
        closing(Track(Path(directory), spawner, call, random.Random(seed))) as track,
    ):
        for number in range(amount):
            try:
                track.race()
            except AssertionError as error:
                track.faults.append(str(error))
            if track.faults:
                found = [f"two brokers, seed {seed}, race {number}: {fault}" for fault in track.faults]
                return Tally(track.counts, [*found, f"logs: {track.logs()}"])
        return Tally(track.counts)


class Runner:
    """One broker in a race."""

    def __init__(self, process: Spawned, result: Path, sock: str, data: Path) -> None:
        self.process = process
        self.result = result
        self.socket = sock
        self.data = data

    @property
    def end(self) -> tuple[int, float] | None:
        """Exit code and seconds after the start; None while it runs."""
        if not self.result.exists():
            return None
        code, seconds = self.result.read_text().split()
        return int(code), float(seconds)


class Worker:
    """A worker without a supervisor, as a raw connection: it takes one job and holds it."""

    def __init__(self) -> None:
        self._identity = identity(os.urandom(8).hex())
        self._socket = socket.socket(socket.AF_UNIX)
        self.token: list[int] | None = None

    def hello(self, path: str) -> list[Any]:
        """Connect and say what it holds; what of that it has lost."""
        self._socket.close()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(START_S)
        self._socket.connect(path)
        held = [[*self.token, "running"]] if self.token else []
        words = Hello(1, "work", "holder", self._identity, b"", ["held"], 1, held)
        lost: list[Any] = self._ask(1, BY_MESSAGE[Hello].number, words)[-1]
        return lost

    def take(self) -> None:
        """Wait for a job."""
        self.token = self._receive()[2]

    def finish(self) -> bool:
        """Acknowledge it; whether it was still its own."""
        assert self.token is not None
        answer = self._ask(2, BY_MESSAGE[Ack].number, Ack(self.token))
        self.token = None
        return bool(answer[0] == ANSWER)

    def _ask(self, request: int, op: int, fields: Sequence[Any]) -> list[Any]:
        self._socket.sendall(frame(op, request, *fields))
        return self._receive()

    def _receive(self) -> list[Any]:
        size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        array: list[Any] = msgpack.unpackb(self._socket.recv(size, socket.MSG_WAITALL))
        return array

    def close(self) -> None:
        self._socket.close()


class Track:
    """The directory that is raced for, and what was acknowledged there."""

    def __init__(self, directory: Path, spawner: Spawner, call: str, rng: random.Random) -> None:
        self._directory = directory
        self._spawner = spawner
        self._call = call
        self._rng = rng
        self._races = 0
        self._epoch = 0
        self._acknowledged = 0
        self._data = directory / "real" / "data"
        self._worker = Worker()
        self.counts = {"races": 0, "brokers": 0, "refused": 0, "kept": 0}
        self.faults: list[str] = []
        self._data.parent.mkdir(mode=0o700)
        (directory / "alias").symlink_to("real")
        (directory / "mounted").mkdir(mode=0o700)

    def race(self) -> None:
        """One race, the look at its winner, and its end."""
        self._races += 1
        runners = self._line_up()
        with open(self._gate, "wb"):
            # Whoever waits to open it is let through by that alone, and so is who comes a moment later.
            winner = self._winner(runners)
        self._judge_losers([runner for runner in runners if runner is not winner])
        if winner is not None:
            self._judge_winner(winner)
            winner.process.signal(self._rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        for runner in runners:
            assert runner.process.has_ended(START_S), "the winner did not end"
        self.counts["races"] += 1
        self.counts["brokers"] += len(runners)

    # --- the start ---------------------------------------------------------------------------------------------

    def _line_up(self) -> list[Runner]:
        count = self._rng.randrange(2, RACERS_MAX + 1)
        one_socket, self._gate = self._rng.random() < 0.4, self._directory / f"gate-{self._races}"
        os.mkfifo(self._gate)
        runners = [self._enter(number, 0 if one_socket else number) for number in range(count)]
        for runner in runners:
            ready = Path(f"{runner.result}.ready")
            wait_until(ready.exists, "a broker is at the gate", deadline_s=START_S)
        return runners

    def _enter(self, number: int, socket_number: int) -> Runner:
        ways = WAYS if os.geteuid() == 0 and self._data.exists() else WAYS[:2]
        way = self._rng.choice(ways)
        mount = (str(self._data.parent), str(self._directory / "mounted")) if way == WAYS[2] else ("", "")
        data = {WAYS[0]: self._data, WAYS[1]: self._directory / "alias" / "data"}.get(
            way, self._directory / "mounted" / "data"
        )
        result = self._directory / f"result-{self._races}-{number}"
        sock = str(self._directory / f"{socket_number}.sock")
        arguments = ("broker", "--data", str(data), "--socket", sock, "--config", os.devnull)
        log = self._directory / f"broker-{number}.log"
        process = self._spawner.spawn(self._call, str(self._gate), str(result), *mount, *arguments, log=log)
        return Runner(process, result, sock, data)

    # --- the verdict -------------------------------------------------------------------------------------------

    def _winner(self, runners: list[Runner]) -> Runner | None:
        """The one that is left when all others have ended, if it serves."""
        end_s = time.monotonic() + DECIDED_S
        while len(left := [runner for runner in runners if runner.end is None]) > 1:
            if time.monotonic() > end_s:
                self.faults.append(f"{len(left)} of {len(runners)} brokers serve: {self._served_by(left)}")
                self._kill(left)
                return None
            select.select([], [], [], 0.005)
        if not left:
            self.faults.append(f"none of {len(runners)} brokers serves")
            return None
        wait_until(lambda: self._pid_at(left[0]) is not None, "the winner serves", deadline_s=START_S)
        if self._pid_at(left[0]) != left[0].process.pid:
            self.faults.append("another process serves than the one that is left")
        return left[0]

    def _served_by(self, runners: list[Runner]) -> list[int | None]:
        return [self._pid_at(runner) for runner in runners]

    @staticmethod
    def _kill(runners: list[Runner]) -> None:
        for runner in runners:
            runner.process.signal(signal.SIGKILL)

    @staticmethod
    def _pid_at(runner: Runner) -> int | None:
        client = Client(runner.socket, retry_s=0, timeout_s=START_S)
        try:
            return int(client.status()["pid"])
        except StokerError:
            return None
        finally:
            client.close()

    def _judge_losers(self, losers: list[Runner]) -> None:
        for loser in losers:
            end = loser.end
            if end is None:
                continue
            self.counts["refused"] += 1
            if end[0] != Exit.OWNED:
                self.faults.append(f"a loser ended with {end[0]}")
            if end[1] > LOSER_S:
                self.faults.append(f"a loser took {end[1]} s to end")

    def _judge_winner(self, winner: Runner) -> None:
        client = Client(winner.socket, timeout_s=START_S)
        try:
            epoch = client.status()["epoch"]
            if epoch != self._epoch + 1:
                self.faults.append(f"epoch {epoch} after {self._epoch}")
            self._epoch = epoch
            for number in range(self._acknowledged):
                client.show(f"job-{number}")
            self._see_to_the_worker(winner, client)
            client.enqueue("unserved", id=f"job-{self._acknowledged}")
            self._acknowledged += 1
        except StokerError as error:
            self.faults.append(f"the winner said {error!r}")
        finally:
            client.close()

    def _see_to_the_worker(self, winner: Runner, client: Client) -> None:
        """It comes back with the job that it held, which is still its own; then it takes another."""
        held = self._worker.token
        lost = self._worker.hello(winner.socket)
        if held is not None:
            if lost or not self._worker.finish():
                self.faults.append(f"the worker lost its job: {lost}")
            self.counts["kept"] += 1
        client.enqueue("held")
        self._worker.take()

    def close(self) -> None:
        self._worker.close()

    def logs(self) -> str:
        """The last lines of all."""
        return json.dumps([path.read_text()[-300:] for path in sorted(self._directory.glob("broker-*.log"))])


HARNESS = Harness(
    name="two_brokers",
    title="two to eight brokers started at once on one directory, by all its names",
    unit="races",
    goal=1000,
    piece=50,
    run=run,
)
