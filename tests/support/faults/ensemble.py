"""An ensemble: broker, pool and clients on one directory, any of whom can be killed and started again.

Everybody notes what he sees (`notebook`), also this module: a kill before it is sent. At the end come calm,
the end of all work, and a history for the oracle.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from stoker import Client
from stoker.proto import limits
from stoker.proto.errors import StokerError

from .. import history as h
from ..paths import TESTS, python_path
from ..proof.harness import Tally
from ..waiting import wait_until
from . import inspection, lineage, testimony
from .errands import CALM, Plan
from .notebook import Notebook, merged
from .spawner import STOKER, Spawned, Spawner

APPS = TESTS / "support" / "apps"
ERRANDS = "support.faults.errands:main"

START_S = 30.0
FRESH_SHARE = 0.1
"""Of the daemons, so many come from an interpreter of their own, as in production; clients never do."""

MEMORY_CAP_BYTES = 160 * limits.MIB
"""Of a broker that has a few hundred live jobs and clients: two and a half times what it takes when it starts."""

DESCRIPTORS_CAP = 100
LOG_CAP_BYTES = 2 * limits.WAL_BYTES_CHECKPOINT + limits.BATCH_BYTES_MAX


class Ensemble:
    """See the module. Use as a context manager."""

    def __init__(
        self,
        directory: Path,
        random: Random,
        *,
        broker: str = STOKER,
        pool: str = STOKER,
        workers: int = 6,
        clients: int = 4,
        app: str = "marking:app",
        plan: Plan | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.socket = str(directory / "broker.sock")
        self.jobs = Notebook(directory / "jobs")
        self.notebook = Notebook(directory / "kills")
        self.client = Client(self.socket)
        self._random = random
        self._broker_call, self._pool_call, self._options = broker, pool, options
        self._worker_count, self._client_count = workers, clients
        self._app = app
        self._plan = plan or Plan()
        self._spawner = Spawner()
        self.broker: Spawned | None = None
        self.pool: Spawned | None = None
        self.clients: list[Spawned] = []
        self._client_lives = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        # The supervisor first: it has something to tell the broker.
        for process in (self.pool, self.broker):
            if process is not None and error is None:
                process.signal(signal.SIGTERM)
                process.has_ended(START_S)
        self._spawner.__exit__(kind, error, traceback)

    # --- who is there ----------------------------------------------------------------------------------

    def spawn(self, name: str, call: str, *arguments: str) -> Spawned:
        """A process with this log, killed when the block ends."""
        environ = {
            "NOTES": str(self.directory),
            "PYTHONPATH": python_path(TESTS, APPS),
            "STOKER_CONFIG": os.devnull,
        }
        return self._spawner.spawn(
            call,
            *arguments,
            log=self.directory / f"{name}.log",
            environ=environ,
            fresh=call == STOKER and self._random.random() < FRESH_SHARE,
        )

    def start_broker(self) -> None:
        """Start it, and wait until somebody can connect."""
        data = str(self.directory / "data")
        self.broker = self.spawn(
            "broker", self._broker_call, "broker", "--socket", self.socket, "--data", data, *self._options
        )
        wait_until(self._is_heard, "the broker listens", deadline_s=START_S)

    def _is_heard(self) -> bool:
        assert self.broker is not None
        assert not self.broker.has_ended(), "the broker ended by itself"
        try:
            return bool(self.client.status())
        except StokerError:
            return False

    def start_pool(self) -> None:
        """Start a supervisor, and wait until it has a worker."""
        count = str(self._worker_count)
        self.pool = self.spawn(
            "pool", self._pool_call, "pool", self._app, "--workers", count, "--socket", self.socket
        )
        wait_until(self.workers, "a worker", deadline_s=START_S)

    def start_clients(self) -> None:
        """All of them."""
        self.clients = [self._start_client(index) for index in range(self._client_count)]

    def _start_client(self, index: int) -> Spawned:
        self._client_lives += 1
        name = f"{index}.{self._client_lives}"
        plan, seed = json.dumps(self._plan), str(self._random.getrandbits(32))
        arguments = (str(self.directory), self.socket, str(index), name, seed, plan)
        return self.spawn("clients", ERRANDS, *arguments)

    def zygotes(self) -> list[int]:
        """Pids of the present supervisor's."""
        return [] if self.pool is None else lineage.children_of(self.pool.pid, "stoker-zygote")

    def workers(self) -> list[tuple[int, int]]:
        """Pids of its workers, each with its parent's."""
        return [
            (worker, zygote)
            for zygote in self.zygotes()
            for worker in lineage.children_of(zygote, "stoker-worker")
        ]

    # --- kills -----------------------------------------------------------------------------------------

    def kill_broker(self) -> None:
        """SIGKILL; it stays away."""
        assert self.broker is not None
        self.notebook.note("crashed")
        self._kill(self.broker)

    def kill_supervisor(self) -> None:
        """SIGKILL. Its zygote ends the workers."""
        assert self.pool is not None
        self.notebook.note("kill", self.pool.pid)
        self._kill(self.pool)

    def kill_client(self, index: int) -> None:
        """SIGKILL; `revive_client` has it replaced."""
        self._kill(self.clients[index])

    def revive_client(self, index: int) -> None:
        """Another one, which goes on where the last was."""
        self.clients[index] = self._start_client(index)

    def _kill(self, process: Spawned) -> None:
        process.signal(signal.SIGKILL)
        assert process.has_ended(START_S), f"process {process.pid} does not end"

    def kill_child(self, pid: int, parent: int, number: signal.Signals = signal.SIGKILL) -> bool:
        """A signal to a zygote or a worker, if it is still what it was; whether that was so."""
        pidfd = lineage.pidfd_of_child(pid, parent)
        if pidfd is None:
            return False
        try:
            if number is signal.SIGKILL:
                self.notebook.note("kill", pid)
            signal.pidfd_send_signal(pidfd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True

    def wait_for_work(self) -> None:
        """Wait until another handler has started, or ended."""
        before = self.jobs.size()
        wait_until(lambda: self.jobs.size() > before, "a handler does something", deadline_s=START_S)

    # --- measuring, and the end --------------------------------------------------------------------------

    def sample(self) -> None:
        """Note what the broker takes of memory, descriptors and disk."""
        assert self.broker is not None
        process = Path(f"/proc/{self.broker.pid}")
        try:
            pages = int((process / "statm").read_text().split()[1])
            descriptors = len(os.listdir(process / "fd"))
            log_bytes = (self.directory / "data" / "journal.db-wal").stat().st_size
        except OSError:
            # It is being killed.
            return
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        self.notebook.note("sampled", "memory of the broker in bytes", memory, MEMORY_CAP_BYTES)
        self.notebook.note("sampled", "descriptors of the broker", descriptors, DESCRIPTORS_CAP)
        self.notebook.note("sampled", "bytes of the log", log_bytes, LOG_CAP_BYTES)

    def settle(self, bound_ms: int) -> None:
        """No more faults: wait until the clients have all their answers and every job is finished."""
        self.notebook.note("calm", bound_ms)
        (self.directory / CALM).touch()
        end = time.monotonic() + 2 * bound_ms / 1000
        for client in self.clients:
            client.has_ended(max(0.0, end - time.monotonic()))
        while not self._is_finished() and time.monotonic() < end:
            time.sleep(0.02)

    def _is_finished(self) -> bool:
        totals = self.client.status()["totals"]
        return not any(totals[state] for state in ("scheduled", "ready", "leased"))

    def witnessed(self) -> list[h.Record]:
        """What was noted and logged, without anything that the broker would have to say."""
        books = [self.jobs, self.notebook]
        books += [Notebook(path) for path in sorted(self.directory.glob("client-*"))]
        return [*testimony.records_of(merged(books)), *self.logged()]

    def logged(self) -> list[h.Logged]:
        """What everybody's log has."""
        return [line for log in sorted(self.directory.glob("*.log")) for line in inspection.logged(log)]

    def history(self, late_ms: int | None = None) -> list[h.Record]:
        """All of it. With `late_ms`, also the retries: so long may one that is due wait for a worker."""
        ended, records = inspection.ended(self.socket), self.witnessed()
        if late_ms is not None:
            tried_again = [row.id for row in ended.rows if len(row.attempts or ()) > 1]
            for job in inspection.shown(self.socket, tried_again):
                records += inspection.retries(job, late_ms)
        return [*records, ended]


def in_its_own_directory(trial: Callable[[Path], Tally]) -> Tally:
    """A trial in a directory that is gone afterwards. Its path is short, for the sake of the socket's."""
    directory = Path(tempfile.mkdtemp(prefix="stk-", dir="/tmp"))
    try:
        return trial(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
