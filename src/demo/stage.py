"""The stage of the demo: a private directory, a real `stoker up` in it, and the two kills.

Only processes that descend from the `up` started here are ever signalled, each through a pidfd that
was opened before that was checked, so that no number can have passed to a stranger in between. At
the end `up` is asked to stop, then its group is killed, and the directory goes, whatever happened.
"""

import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from .. import BrokerUnreachableError, Client

START_S = 20.0
STOP_S = 10.0
DEATH_S = 5.0
"""A SIGKILL takes effect at once; this long only where the disk holds the process."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StageError(Exception):
    """The demo could not be set up or carried through; the text is for the person who ran it."""


class Stage:
    """`set_up`, play, and in any case `strike`. `client` talks to the broker on it."""

    def __init__(self) -> None:
        self.directory = ""
        self._up: subprocess.Popen[bytes] | None = None

    def set_up(self, workers: int) -> None:
        """Make the directory and start `stoker up` in it."""
        with signals_held():
            self.directory = tempfile.mkdtemp(prefix="stoker-demo-")  # 0700, and short enough for a socket
            self.socket = os.path.join(self.directory, "broker.sock")
            self._log = os.path.join(self.directory, "log")
            self.client = Client(self.socket)
            command = [
                *(sys.executable, "-m", "stoker.cli.main", "up", "stoker.demo.tasks:app"),
                *("--workers", str(workers), "--socket", self.socket),
                *("--data", os.path.join(self.directory, "data")),
                # What this host's broker is told is not for the demo's.
                *("--config", os.devnull),
            ]
            with open(self._log, "wb") as log:
                # A session of its own: Ctrl-C on the terminal reaches the demo alone, which stops the
                # rest in order.
                self._up = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )

    def strike(self) -> None:
        """End every process and remove the directory, however far the set-up came."""
        with signals_held():
            try:
                if self._up is not None:
                    self.client.close()
                    _end(self._up)
            finally:
                if self.directory:
                    shutil.rmtree(self.directory, ignore_errors=True)

    def wait_ready(self, workers: int) -> None:
        """Return when that many workers may take jobs; StageError with the log if they never do."""
        end = time.monotonic() + START_S
        while len(self._workers()) < workers:
            assert self._up is not None
            if self._up.poll() is not None:
                raise StageError(f"`stoker up` ended with {self._up.returncode}:\n{self.last_log()}")
            if time.monotonic() > end:
                raise StageError(f"no {workers} workers within {START_S:.0f} s:\n{self.last_log()}")
            time.sleep(0.02)

    def _workers(self) -> list[Mapping[str, Any]]:
        try:
            return list(self.client.status().get("workers", ()))
        except BrokerUnreachableError:
            return []

    def kill_worker_and_broker(self) -> tuple[int, int]:
        """SIGKILL a worker, a busy one if there is one, and the broker; their pids once they are dead.

        Both in one breath: so the broker hands out nothing between the two, and each slot can have at
        most one job that is delivered again. `up` starts another broker.
        """
        workers = sorted(self._workers(), key=lambda worker: worker.get("state") != "busy")
        if not workers:
            raise StageError("no worker to kill")
        pids = (int(workers[0]["pid"]), self._broker())
        with ExitStack() as stack:
            pidfds = [stack.enter_context(self._own(pid)) for pid in pids]
            for pidfd in pidfds:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            for pid, pidfd in zip(pids, pidfds, strict=True):
                if not select.select([pidfd], [], [], DEATH_S)[0]:
                    raise StageError(f"process {pid} survived SIGKILL for {DEATH_S:.0f} s")
        return pids

    def _broker(self) -> int:
        """Whoever listens on the socket, by the word of the kernel."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self.socket)
            size = struct.calcsize("3i")
            pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return int(pid)

    @contextmanager
    def _own(self, pid: int) -> Generator[int]:
        """A pidfd of a process that descends from this stage's `up`; StageError for any other."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise StageError(f"process {pid} ended before it could be killed") from None
        try:
            if self._up is None or self._up.pid not in ancestors(pid):
                raise StageError(f"process {pid} is not one of the demo's; it was left alone")
            yield pidfd
        finally:
            os.close(pidfd)

    def last_log(self) -> str:
        """The end of what `up` said, escaped."""
        with open(self._log, "rb") as log:
            lines = log.read()[-4000:].decode("utf-8", "replace").splitlines()[-15:]
        return "\n".join("  " + line.encode("ascii", "backslashreplace").decode() for line in lines)


def _end(up: subprocess.Popen[bytes]) -> None:
    up.terminate()
    try:
        up.wait(STOP_S)
    except subprocess.TimeoutExpired:
        # Its own group, whose leader is not yet reaped, so the number is still its own.
        os.killpg(up.pid, signal.SIGKILL)
        up.wait()


@contextmanager
def signals_held() -> Generator[None]:
    """Signals to end wait until the block is left: nobody could take down half a set-up."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def ancestors(pid: int) -> set[int]:
    """Parents of a process, up to the first."""
    found: set[int] = set()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                # The name may hold anything, so count from its closing parenthesis.
                pid = int(stat.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            break
        found.add(pid)
    return found
