"""One life of the simulated broker: from a start until it crashes, on the real core and committer.

This is the driver without sockets and threads. Its rules are those of the real one: the messages of
a connection enter the core in their order; what the core wants to know is looked up first; effects
leave when the committer says so; a death is told after everything the dead had written.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from stoker.broker.batchtimes import BatchTimes
from stoker.broker.committer import Committer
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.journal import Journal, JournalFullError, Retention
from stoker.broker.memory import MemoryJournal
from stoker.broker.questions import look_up
from stoker.proto import work
from stoker.proto.messages import Drop, Hello, Message
from stoker.proto.model import FINAL_STATES, Role

from .. import history as h
from ..committers import make_committer
from ..driving import restored
from .disk import SlowDisk
from .host import Host
from .watched import WatchedCore
from .wire import Wire

FULL_RETRY_MS = 500

CHORES_MS = 2000
RETENTION = Retention(done_kept_ms=15_000, done_kept_max=25, dead_kept_ms=20_000, dead_kept_max=25)
PRUNE_ROWS = 5


@attrs.frozen
class Parts:
    """What a broker is made of: the real things, or broken ones that the oracle has to find."""

    core: Callable[..., WatchedCore] = WatchedCore
    committer: Callable[..., Committer] = make_committer
    chores_ms: int = CHORES_MS
    retention: Retention = RETENTION


REAL = Parts()


class _Connection:
    """A wire, and what it brought that the core has not seen yet."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.waiting: deque[ev.Event] = deque()
        self.lookups = 0
        self.has_ended = False


class Life:
    """See the module. `on_end` is called when the journal broke, so that this life is over."""

    def __init__(
        self, host: Host, journal: MemoryJournal, rules: Rules, parts: Parts, on_end: Callable[[], None]
    ) -> None:
        self._host = host
        self._journal = journal
        self._parts = parts
        self._on_end = on_end
        self.alive = True
        self.disk = SlowDisk(host, journal, self._when_running)
        self.core = restored(journal, parts.core, rules, host.clock, host.heap.random.random)
        self._committer = parts.committer(
            self.disk, self.core.take_changes, self._release, self, self._make_room
        )
        self._connections: dict[int, _Connection] = {}
        self._numbers = 0
        self._lookups: list[int] = []
        self._wakes_ms: int | None = None
        self._stalled = False
        self._held: list[Callable[[], None]] = []
        self._full_rounds = 0
        self._times = BatchTimes(self._committer)
        self._arm()
        self._plan_chores()

    @property
    def is_idle(self) -> bool:
        """Everything that was decided is on disk and told."""
        return self._committer.is_idle

    # --- connections ------------------------------------------------------------------------------------

    def accept(self, peer: Any, is_text: bool) -> Wire:
        """A new connection."""
        self._numbers += 1
        wire = Wire(self._host, peer, self._numbers, lambda wire: self._when_running(lambda: self.read(wire)))
        connection = self._connections[wire.number] = _Connection(wire)
        connection.waiting.append(ev.Connected(wire.number, 1000, peer.process.pid, is_text))
        self._when_running(lambda: self._advance(connection))
        return wire

    def read(self, wire: Wire) -> None:
        """Read a connection to its end, or to where nothing more is there yet."""
        connection = self._connections.get(wire.number)
        if connection is None or connection.has_ended:
            return
        while wire.unread:
            request, message = wire.unread.popleft()
            connection.waiting.append(ev.Received(wire.number, request, message))
        if not wire.peer_is_open:
            connection.has_ended = True
            if not wire.peer.process.alive:
                connection.waiting.append(ev.PeerExited(wire.number))
            connection.waiting.append(ev.Disconnected(wire.number))
        self._advance(connection)

    def _advance(self, connection: _Connection) -> None:
        while connection.waiting and not connection.lookups and self.alive:
            event = connection.waiting.popleft()
            if isinstance(event, ev.Received):
                self._look_then_step(connection, event)
            else:
                self.step(event)
                if isinstance(event, ev.Disconnected):
                    del self._connections[event.connection]

    def _look_then_step(self, connection: _Connection, event: ev.Received) -> None:
        if isinstance(event.message, Hello):
            self._read_older(connection, event.message)
        wants = self.core.wants(event.message)
        asked_at = self.core.steps
        if not wants:
            event.found, event.asked_at = {}, asked_at
            self.step(event)
            return
        connection.lookups += 1
        self._lookups.append(asked_at)

        def answered(found: dict[str, ev.Found]) -> None:
            self._lookups.remove(asked_at)
            connection.lookups -= 1
            event.found, event.asked_at = found, asked_at
            self.step(event)
            self._advance(connection)

        self._committer.look(lambda journal: look_up(journal, wants), answered)
        self._flush_soon()

    def _read_older(self, newer: _Connection, hello: Hello) -> None:
        """A worker that comes anew is heard out on its older connection first."""
        if hello.role == Role.WORK:
            for older in list(self._connections.values()):
                if older.wire.number < newer.wire.number and older.wire.peer is newer.wire.peer:
                    self.read(older.wire)

    # --- driving the core ---------------------------------------------------------------------------------

    def step(self, event: ev.Event) -> None:
        """One event into the core; its effects go to the committer."""
        if not self.alive:
            return
        self._host.note(f"step {event}")
        if isinstance(event, ev.Received):
            self._note(event, event.message)
        effects = self.core.step(event, self._host.clock.now())
        self._committer.add([effect for effect in effects if not isinstance(effect, fx.LookAgain)])
        for effect in effects:
            if isinstance(effect, fx.LookAgain):
                self._look_again(effect.event)
        self.core.trim_departed(min(self._lookups, default=self.core.steps))
        self._flush_soon()
        self._arm()

    def _note(self, event: ev.Received, message: Message) -> None:
        """What the oracle has to know of a message that came: ends of attempts, deletions."""
        history, now_ms = self._host.history, self._host.now_ms
        if isinstance(message, work.Ack | work.Nack | work.Release):
            worker = self._connections[event.connection].wire.peer.process.name
            token, op = message.token, type(message).__name__.lower()
            history.add(h.Reached(now_ms, worker, (token[0], token[1]), op))
        elif isinstance(message, work.Recalled):
            for record in recalled(now_ms, self._connections[event.connection].wire.peer, message):
                history.add(record)
        elif isinstance(message, Drop):
            for id, found in event.found.items():
                if found.job is not None and found.job.state in FINAL_STATES:
                    history.add(h.Dropped(now_ms, id))

    def _look_again(self, event: ev.Received) -> None:
        connection = self._connections.get(event.connection)
        if connection is not None:
            self._look_then_step(connection, event)

    def _flush_soon(self) -> None:
        heap = self._host.heap
        if heap.happens(0.5):
            self._committer.flush()
        else:
            heap.after(heap.between(0, 3), lambda: self._when_running(self._committer.flush))

    def _arm(self) -> None:
        """See to it that a look at the clock comes no later than the core asked for."""
        now_ms = self._host.now_ms
        wakes_ms = now_ms + self.core.next_deadline(self._host.clock.now())
        if self._wakes_ms is None or wakes_ms < self._wakes_ms:
            self._wakes_ms = wakes_ms
            self._host.heap.after(wakes_ms - now_ms, lambda: self._when_running(lambda: self._wake(wakes_ms)))

    def _wake(self, wakes_ms: int) -> None:
        """Look at the clock, unless no verdict could be shown: then what is held back is not late."""
        if self._wakes_ms == wakes_ms:
            self._wakes_ms = None
            if not self._times.look(self._host.now_ms):
                self.step(ev.TimePassed())

    # --- what the committer lets out ------------------------------------------------------------------------

    def _release(self, effects: Sequence[fx.Effect], payloads: Mapping[int, bytes]) -> None:
        for effect in effects:
            if not isinstance(effect, fx.Log | fx.LookAgain):
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    self._let_out(connection, effect, payloads)

    def _let_out(
        self,
        connection: _Connection,
        effect: fx.Answer | fx.Refuse | fx.Push | fx.Close | fx.KillPeer,
        payloads: Mapping[int, bytes],
    ) -> None:
        wire = connection.wire
        if isinstance(effect, fx.Answer):
            wire.answer(effect.request, effect.message)
        elif isinstance(effect, fx.Refuse):
            wire.answer(effect.request, effect.refusal)
        elif isinstance(effect, fx.Push):
            wire.push(self._filled(wire, effect.message, payloads))
        elif isinstance(effect, fx.KillPeer):
            wire.peer.process.die()
        else:
            wire.hang_up()
            if not connection.has_ended:
                connection.has_ended = True
                connection.waiting.append(ev.Disconnected(wire.number))
                self._advance(connection)

    def _filled(self, wire: Wire, message: Message, payloads: Mapping[int, bytes]) -> Message:
        if not isinstance(message, work.Job):
            return message
        token = (message.token[0], message.token[1])
        worker = wire.peer.process.name
        self._host.history.add(
            h.Pushed(self._host.now_ms, message.id, token, worker, message.attempt, message.time_limit_ms)
        )
        return message._replace(payload=payloads[message.number])

    # --- what the committer reports -------------------------------------------------------------------------

    def fill_disk(self, rounds: int) -> None:
        """The disk is full: so many tries of the next batch fail."""
        self._full_rounds = rounds
        self._journal.fail_commit(1, JournalFullError)

    def _make_room(self, _: Journal) -> None:
        """There is none to make while the disk is to stay full."""
        if self._full_rounds:
            self._full_rounds -= 1
            self._journal.fail_commit(1, JournalFullError)

    def commit_begun(self) -> None:
        self._times.begun(self._host.now_ms)

    def commit_full(self) -> None:
        self._times.found_full()
        self.step(ev.StorageChanged(full=True))
        self._host.heap.after(FULL_RETRY_MS, self._retry)

    def _retry(self) -> None:
        if self.alive:
            if self._full_rounds:
                self._journal.fail_commit(1, JournalFullError)
            self._committer.retry()

    def commit_stored(self) -> None:
        was_full = self._times.is_full
        held_ms = self._times.stored(self._host.now_ms)
        if was_full:
            self.step(ev.Stalled(held_ms))
            self.step(ev.StorageChanged(full=False))
        if held_ms:
            self.step(ev.HeldUp(self._committer.pushes_held()))

    def commit_failed(self, error: BaseException) -> None:
        self._host.note(f"journal broke: {error}")
        self._on_end()

    # --- chores -------------------------------------------------------------------------------------------

    def _do_chores(self) -> None:
        """Retention: the journal says what is over its time, the core decides."""
        asked_at, boot_ms = self.core.steps, self._host.clock.now().boot_ms
        self._lookups.append(asked_at)

        def prunable(journal: Journal) -> Sequence[Any]:
            journal.forget_ids(boot_ms=boot_ms, limit=PRUNE_ROWS)
            return journal.prunable(self._parts.retention, boot_ms=boot_ms, limit=PRUNE_ROWS)

        def found(rows: Sequence[Any]) -> None:
            self._lookups.remove(asked_at)
            for row in rows:
                assert row[5] in FINAL_STATES, f"job {row[1]} is {row[5]} and shall be pruned"
                self._host.history.add(h.Dropped(self._host.now_ms, row[1]))
            self.step(ev.PruneFound(rows, asked_at))

        self._committer.look(prunable, found)
        self._flush_soon()
        self._plan_chores()

    def _plan_chores(self) -> None:
        self._host.heap.after(self._parts.chores_ms, lambda: self._when_running(self._do_chores))

    # --- stalls and the end ---------------------------------------------------------------------------------

    def _when_running(self, action: Callable[[], None]) -> None:
        if self._stalled:
            self._held.append(action)
        elif self.alive:
            action()

    def stall(self, stalled_ms: int) -> None:
        """The broker's process does not run for a while; then it reads first what waits for it."""
        if not self._stalled:
            self._stalled = True
            self._host.heap.after(stalled_ms, lambda: self._go_on(stalled_ms))

    def _go_on(self, stalled_ms: int) -> None:
        self._stalled = False
        held, self._held = self._held, []
        if not self._times.is_full:
            self.step(ev.Stalled(stalled_ms))
        for connection in list(self._connections.values()):
            self.read(connection.wire)
        for action in held:
            self._when_running(action)

    def end(self) -> None:
        """The process is gone: what was not committed never was."""
        self.alive = self.disk.alive = False
        for connection in self._connections.values():
            connection.wire.hang_up()


def recalled(at_ms: int, supervisor: Any, message: work.Recalled) -> Iterator[h.Recalled]:
    """What the oracle has to know of a supervisor's word: nothing if that worker is not there any more."""
    through, started = message.through, message.started
    key = None if started is None else (started[0], started[1])
    for worker in supervisor.workers:
        if worker.nonce == message.worker:
            yield h.Recalled(at_ms, worker.name, (through[0], through[1]), key)
