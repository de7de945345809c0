"""The simulated broker over all its lives: it crashes, starts again, and finds who died meanwhile."""

from collections.abc import Callable
from typing import Protocol

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.memory import MemoryJournal

from .. import history as h
from .host import Host, Process
from .life import Life, Parts
from .watched import WatchedCore
from .wire import Line, Peer

START_MS_MIN, START_MS_MAX = 5, 3000

WATCH_MS = 200
"""How long after a death the broker sees that an absent owner is dead."""


class Slowness(Protocol):
    """A disk that can be made slow."""

    extra_ms: int


class Living(Protocol):
    """One life of a broker, as those see it that look at it and do it harm."""

    @property
    def core(self) -> WatchedCore: ...

    @property
    def is_idle(self) -> bool: ...

    @property
    def disk(self) -> Slowness: ...

    def stall(self, stalled_ms: int) -> None: ...

    def fill_disk(self, rounds: int) -> None: ...


class Broker(Protocol):
    """A broker, as the actors of a world see it."""

    journal: MemoryJournal

    @property
    def life(self) -> Living | None: ...

    def crash(self) -> None: ...

    def knows(self, identity: str, process: Process) -> None: ...

    def accept(self, peer: Peer, *, is_text: bool = False) -> Line | None: ...

    def when_up(self, action: Callable[[Living], None]) -> None: ...


class SimBroker:
    """Lives on one journal, one after the other."""

    def __init__(self, host: Host, rules: Rules, parts: Parts) -> None:
        self._host = host
        self._rules = rules
        self._parts = parts
        self.journal = MemoryJournal()
        self._processes: dict[str, Process] = {}
        """Workers and supervisors by identity text, living or dead: what /proc would say."""
        self.life: Life | None = None
        self.start()

    def start(self) -> None:
        """Begin a life on what was committed."""
        self.life = Life(self._host, self.journal, self._rules, self._parts, self.crash)
        self._host.note("broker started")
        for identity in self.life.core.absent_owners():
            process = self._processes[identity]
            if not process.alive:
                self._say_gone(identity)

    def crash(self) -> None:
        """End this life at once. Another one begins after a while."""
        if self.life is not None:
            self.life.end()
            self.life = None
            self._host.history.add(h.Crashed(self._host.now_ms))
            self.journal = self.journal.crash()
            self._host.heap.after(self._host.heap.between(START_MS_MIN, START_MS_MAX), self.start)

    def knows(self, identity: str, process: Process) -> None:
        """A worker process exists: if it dies while no connection tells of it, that is seen too."""
        self._processes[identity] = process
        process.on_death(lambda: self._host.heap.after(WATCH_MS, lambda: self._say_gone(identity)))

    def _say_gone(self, identity: str) -> None:
        life = self.life
        if life is not None and identity in life.core.absent_owners():
            life.step(ev.OwnerGone(identity))

    def accept(self, peer: Peer, *, is_text: bool = False) -> Line | None:
        """A connection for a peer; None while nobody listens."""
        return None if self.life is None else self.life.accept(peer, is_text)

    def when_up(self, action: Callable[[Living], None]) -> None:
        """Do something to the present life, if there is one."""
        if self.life is not None:
            action(self.life)
