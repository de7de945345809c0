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
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from .. import BrokerUnreachableError, Client

START_S = 20.0
STOP_S = 10.0
DEATH_S = 5.0
"""A SIGKILL takes effect at once; this long only where the disk holds the process."""


class StageError(Exception):
    """The demo could not be set up or carried through; the text is for the person who ran it."""


class Stage:
    """Use as a context manager. `client` talks to the broker on it."""

    def __init__(self, workers: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="stoker-demo-")  # 0700, and short enough for a socket
        self.socket = os.path.join(self.directory, "broker.sock")
        self._log = os.path.join(self.directory, "log")
        self.client = Client(self.socket)
        try:
            self._up = self._start(workers)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _start(self, workers: int) -> subprocess.Popen[bytes]:
        command = [
            *(sys.executable, "-m", "stoker.cli.main", "up", "stoker.demo.tasks:app"),
            *("--workers", str(workers), "--socket", self.socket),
            *("--data", os.path.join(self.directory, "data")),
        ]
        with open(self._log, "wb") as log:
            # A session of its own: Ctrl-C on the terminal reaches the demo, which stops the rest in order.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.strike()

    def wait_ready(self, workers: int) -> None:
        """Return when that many workers may take jobs; StageError with the log if they never do."""
        end = time.monotonic() + START_S
        while len(self._workers()) < workers:
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

    def kill_worker(self) -> int:
        """SIGKILL one worker, a busy one if there is one; its pid once it is dead."""
        workers = sorted(self._workers(), key=lambda worker: worker.get("state") != "busy")
        if not workers:
            raise StageError("no worker to kill")
        return self._kill(int(workers[0]["pid"]))

    def kill_broker(self) -> int:
        """SIGKILL the broker; its pid once it is dead. `up` starts another."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(self.socket)
            # Whoever listens there, by the word of the kernel.
            size = struct.calcsize("3i")
            pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        return self._kill(pid)

    def _kill(self, pid: int) -> int:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise StageError(f"process {pid} ended before it could be killed") from None
        try:
            if self._up.pid not in ancestors(pid):
                raise StageError(f"process {pid} is not one of the demo's; it was left alone")
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            if not select.select([pidfd], [], [], DEATH_S)[0]:
                raise StageError(f"process {pid} survived SIGKILL for {DEATH_S:.0f} s")
        finally:
            os.close(pidfd)
        return pid

    def last_log(self) -> str:
        """The end of what `up` said, escaped."""
        with open(self._log, "rb") as log:
            lines = log.read()[-4000:].decode("utf-8", "replace").splitlines()[-15:]
        return "\n".join("  " + line.encode("ascii", "backslashreplace").decode() for line in lines)

    def strike(self) -> None:
        """End every process and remove the directory. A Ctrl-C meanwhile is not heard: this is bounded."""
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.client.close()
            self._up.terminate()
            try:
                self._up.wait(STOP_S)
            except subprocess.TimeoutExpired:
                # Its own group, whose leader is not yet reaped, so the number is still its own.
                os.killpg(self._up.pid, signal.SIGKILL)
                self._up.wait()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            signal.signal(signal.SIGINT, heard)


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
