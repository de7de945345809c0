"""One life of the real broker in a simulated world: its driver, listener, chores and all, on Trio.

Not simulated: everything from the socket to the commit (`Listener`, `Peer`, `Connection`, `Intake`,
`Questions`, `Driver`, `Delivery`, `Departures`, `Committer`, `Chores`, `Storage`). Simulated: the journal
and its thread, the clocks, and whoever is at the other end of a socket; so also pidfds and /proc.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from stoker.broker.access import Credentials
from stoker.broker.chores import Chores
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.driver import Driver
from stoker.broker.files import Ballast
from stoker.broker.journal import Journal
from stoker.broker.listener import Listener
from stoker.broker.log import Log
from stoker.broker.memory import MemoryJournal
from stoker.broker.notify import Notifier
from stoker.broker.owners import Owners
from stoker.broker.peer import Peer
from stoker.broker.socket import ListeningSocket
from stoker.broker.storage import Storage
from stoker.proto.model import Role

from ..driving import restored
from ..simulation.heap import BOOT_ID
from ..simulation.host import Host, Process
from ..simulation.life import Parts
from ..simulation.watched import WatchedCore
from .heap import TrioHeap
from .runner import SlowRunner
from .wire import SocketWire

BALLAST_BYTES = 4096
CAPACITY = 400


@attrs.frozen
class ShellParts(Parts):
    """What a broker is made of, its shell included."""

    driver: type[Driver] = Driver


class NotedCore(WatchedCore):
    """Tells of each event before it is stepped."""

    note: Callable[[ev.Event], None] | None = None

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        if self.note is not None:
            self.note(event)
        return super().step(event, now)


class QuietLog(Log):
    """Makes every line, and writes none."""

    def _write(self, line: bytes) -> None:
        """Nobody reads it."""


class SimCredentials(Credentials):
    """Of a simulated process."""

    process: Process


class SimPeer(Peer):
    """A peer whose process is a simulated one."""

    __slots__ = ()

    def kill(self) -> None:
        assert isinstance(self.credentials, SimCredentials)
        self.credentials.process.die()


class SimListener(Listener):
    """Knows which simulated peer connected, by the name that its end of the socket has."""

    wires: Mapping[str | bytes, SocketWire] = {}
    by_connection: dict[int, SocketWire]

    def _enter(
        self,
        connected: socket.socket,
        pidfd: int | None,
        credentials: Credentials,
        roles: frozenset[Role],
        now_ms: int,
    ) -> Peer:
        wire = self.wires[connected.getpeername()]
        if pidfd is not None:
            os.close(pidfd)
        death = os.dup(wire.death) if wire.death >= 0 else None
        process = wire.peer.process
        simulated = SimCredentials(process.pid, credentials.uid, credentials.gid)
        simulated.process = process
        peer = super()._enter(connected, death, simulated, roles, now_ms)
        peer.__class__ = SimPeer
        self.by_connection[peer.id] = wire
        return peer


class SimOwners(Owners):
    """Judges identities by the processes of the world."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        super().__init__(boot=BOOT_ID, namespace=1)
        self._processes = processes

    def is_proved_dead(self, owner: str) -> bool:
        return not self._processes[owner].alive


class SimStorage(Storage):
    """A disk on which there is no room to make for a while."""

    runner: SlowRunner

    def make_room(self, journal: Journal) -> None:
        super().make_room(journal)
        if self.runner.full_rounds:
            self.runner.full_rounds -= 1


class ShellLife:
    """See the module."""

    def __init__(
        self,
        host: Host,
        heap: TrioHeap,
        path: str,
        journal: MemoryJournal,
        rules: Rules,
        parts: ShellParts,
        processes: Mapping[str, Process],
        wires: Mapping[str | bytes, SocketWire],
    ) -> None:
        self._host, self._heap = host, heap
        self.scope = trio.CancelScope()
        self.disk = SlowRunner(host, journal)
        self.core = restored(journal, parts.core, rules, host.clock, heap.random.random)
        directory, log = os.path.dirname(path), QuietLog()
        storage = SimStorage(directory, Ballast(directory, BALLAST_BYTES), parts.retention, 0, log)
        storage.runner = self.disk
        self.driver = parts.driver(
            self.core, self.disk, storage, clock=self._now, log=log, snapshots=directory, about={}
        )
        self.listener = SimListener(
            ListeningSocket(path),
            self.driver.poller,
            log,
            self.driver.deadlines,
            capacity=CAPACITY,
            own_uid=os.geteuid(),
            on_input=self.driver.received,
            on_evicted=self.driver.end,
        )
        self.listener.wires, self.listener.by_connection = wires, {}
        chores = Chores(
            self.core,
            self.driver.step,
            self.disk,
            self.driver.committer,
            self.driver.questions,
            storage,
            SimOwners(processes),
            Notifier({}),
            log,
            self.driver.commit_failed,
        )
        self.driver.serve(self.listener, chores.pass_time)

    def _now(self) -> ev.Now:
        self._heap.tell_time()
        return self._host.clock.now()

    @property
    def is_idle(self) -> bool:
        """Everything that was decided is on disk and told."""
        return self.driver.committer.is_idle

    def peer_of(self, connection: int) -> Any:
        """Who is at the other end of a connection."""
        return self.listener.by_connection[connection].peer

    def worker_of(self, connection: int) -> str:
        """The name of the process behind a connection."""
        return str(self.peer_of(connection).process.name)

    def stall(self, stalled_ms: int) -> None:
        """The broker's process does not run for a while."""
        self._heap.stall(stalled_ms)

    def fill_disk(self, rounds: int) -> None:
        """The disk is full: so many tries to make room fail."""
        self.disk.full_rounds = rounds

    def close(self) -> None:
        """The process is gone. Called when its task has ended."""
        self.driver.close()
        self.disk.close()
