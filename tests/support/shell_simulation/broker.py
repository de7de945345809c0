"""The real broker over all its lives in a simulated world. It dies between two rounds of its loop."""

import socket
from collections.abc import Callable

import trio

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.memory import MemoryJournal
from stoker.broker.poller import Poller
from stoker.proto import messages, work
from stoker.proto.messages import Message
from stoker.proto.model import FINAL_STATES

from .. import history as h
from ..simulation.broker import START_MS_MAX, START_MS_MIN, Living
from ..simulation.host import Host, Process
from ..simulation.life import Parts, recalled
from ..simulation.wire import Line, Peer
from .heap import TrioHeap
from .life import NotedCore, ShellLife, ShellParts
from .wire import SocketWire


class ShellBroker:
    """See the module. Runs in the nursery that it is given."""

    def __init__(
        self, host: Host, rules: Rules, parts: Parts, *, heap: TrioHeap, nursery: trio.Nursery, path: str
    ) -> None:
        self._host, self._heap = host, heap
        assert isinstance(parts, ShellParts)
        self._rules, self._parts = rules, parts
        self._nursery = nursery
        self._path = path
        self._processes: dict[str, Process] = {}
        self._wires: dict[str | bytes, SocketWire] = {}
        self._readers = Poller()
        self.journal = MemoryJournal()
        self._life: ShellLife | None = None
        nursery.start_soon(self._read)
        self._start()

    @property
    def life(self) -> Living | None:
        """The present one."""
        return self._life

    # --- lives ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        life = ShellLife(
            self._host,
            self._heap,
            self._path,
            self.journal,
            self._rules,
            self._parts,
            self._processes,
            self._wires,
        )
        assert isinstance(life.core, NotedCore)
        life.core.note = self._note
        self._life = life
        self._host.note("broker started")
        self._nursery.start_soon(self._live, life)

    async def _live(self, life: ShellLife) -> None:
        try:
            with life.scope:
                await life.driver.run()
        except (JournalBrokenError, JournalFullError) as error:
            self._host.note(f"journal broke: {error}")
        self._heap.tell_time()
        self._end(life)

    def _end(self, life: ShellLife) -> None:
        self._life = None
        life.close()
        self._host.history.add(h.Crashed(self._host.now_ms))
        self.journal = self.journal.crash()
        self._heap.after(self._heap.between(START_MS_MIN, START_MS_MAX), self._start)

    def crash(self) -> None:
        """End this life before its next round. Another one begins after a while."""
        if self._life is not None:
            self._life.scope.cancel()

    def knows(self, identity: str, process: Process) -> None:
        """A worker process exists; /proc would say whether it lives."""
        self._processes[identity] = process

    def when_up(self, action: Callable[[Living], None]) -> None:
        """Do something to the present life, if there is one."""
        if self._life is not None:
            # What was sent before it is on its way already.
            self._readers.poll()
            action(self._life)

    # --- connections ----------------------------------------------------------------------------------------

    def accept(self, peer: Peer, *, is_text: bool = False) -> Line | None:
        """A connection for a peer, of frames also for one of text; None while nobody listens."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        name = f"\0{self._path}/{len(self._wires)}".encode()
        connected.bind(name)
        try:
            connected.connect(self._path)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            connected.close()
            return None
        wire = SocketWire(self._host, peer, connected, self._readers, self._pushed)
        self._wires[name] = wire
        return wire

    async def _read(self) -> None:
        """What the broker has written is taken up at once; its way to a peer is the wire's matter."""
        while True:
            await trio.lowlevel.wait_readable(self._readers.fileno())
            self._heap.tell_time()
            self._readers.poll()

    def close(self) -> None:
        """Let go of everything. After the nursery."""
        if self._life is not None:
            self._life.close()
        for wire in self._wires.values():
            wire.dispose()
        self._readers.close()

    # --- what the oracle has to know ------------------------------------------------------------------------

    def _pushed(self, wire: SocketWire, message: Message) -> None:
        if isinstance(message, work.Job):
            token = (message.token[0], message.token[1])
            name = wire.peer.process.name
            self._host.history.add(
                h.Pushed(self._host.now_ms, message.id, token, name, message.attempt, message.time_limit_ms)
            )

    def _note(self, event: ev.Event) -> None:
        history, now_ms = self._host.history, self._host.now_ms
        self._host.note(f"step {event}")
        if isinstance(event, ev.PruneFound):
            for row in event.rows:
                history.add(h.Dropped(now_ms, row[1]))
        elif isinstance(event, ev.Received):
            self._note_message(event, event.message)

    def _note_message(self, event: ev.Received, message: Message) -> None:
        history, now_ms = self._host.history, self._host.now_ms
        if isinstance(message, work.Ack | work.Nack | work.Release):
            assert self._life is not None
            worker, op = self._life.worker_of(event.connection), type(message).__name__.lower()
            history.add(h.Reached(now_ms, worker, (message.token[0], message.token[1]), op))
        elif isinstance(message, work.Recalled):
            assert self._life is not None
            for record in recalled(now_ms, self._life.peer_of(event.connection), message):
                history.add(record)
        elif isinstance(message, messages.Drop):
            for id, found in event.found.items():
                if found.job is not None and found.job.state in FINAL_STATES:
                    history.add(h.Dropped(now_ms, id))
