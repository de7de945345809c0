"""A broker that does everything at once: look up, step, commit, and hand the effects over.

For property tests. `ask` and `event` put each request on disk before the next one comes; `step` and
`ask_within_batch` gather a batch until `commit`, as the real broker does.
"""

from collections.abc import Callable, Sequence
from typing import Any

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.broker.memory import MemoryJournal
from stoker.broker.questions import look_up
from stoker.proto.messages import Message

from .driving import restored

WALL_START_MS = 1_700_000_000_000
SETTLING_ROUNDS_MAX = 20


class FakeClock:
    """Three clocks that are moved by hand. `boot_id` changes when the host is started anew."""

    def __init__(self) -> None:
        self.boot_id = "boot-1"
        self._now = ev.Now(1000, 1000, WALL_START_MS)

    def now(self) -> ev.Now:
        return self._now

    def pass_time(self, passed_ms: int) -> None:
        """All of them go on."""
        self._now = ev.Now(*(instant + passed_ms for instant in self._now))

    def set_wall(self, step_ms: int) -> None:
        """Somebody sets the wall clock."""
        self._now = self._now._replace(wall_ms=self._now.wall_ms + step_ms)


class NumberedCore(Core):
    """A core that says how far it has counted."""

    @property
    def sequence(self) -> int:
        """The last number given; right after a restart what was reserved before."""
        return self._memory.sequence


class Lockstep:
    """See the module. What was sent to each connection is in `answers` and `pushes`, in order."""

    def __init__(
        self, rules: Rules, chance: Callable[[], float], make: type[NumberedCore] = NumberedCore
    ) -> None:
        self._rules = rules
        self._make = make
        self._chance = chance
        self.clock = FakeClock()
        self.journal = MemoryJournal()
        self.core = self._restored()
        self.answers: dict[tuple[int, int], Message] = {}
        self.pushes: list[tuple[int, Message]] = []
        self._connections = 0
        self._requests = 0

    def _restored(self) -> NumberedCore:
        return restored(self.journal, self._make, self._rules, self.clock, self._chance)

    def connect(self, pid: int = 1) -> int:
        """A new connection; its number."""
        self._connections += 1
        self.event(ev.Connected(self._connections, 1000, pid))
        return self._connections

    def ask(self, connection: int, message: Any) -> Message | None:
        """Send a request; its answer, or None if that is to come later."""
        self.ask_within_batch(connection, message)
        self.settle()
        self.commit()
        return self.answers.get((connection, self._requests))

    def ask_within_batch(self, connection: int, message: Any) -> None:
        """Send a request, and commit nothing yet. Look-ups see only what is committed."""
        self._requests += 1
        event = ev.Received(connection, self._requests, message)
        event.found = look_up(self.journal, self.core.wants(message))
        event.asked_at = self.core.steps
        self.step(event)

    def event(self, event: ev.Event) -> None:
        """Step an event, then everything that is due at once, and commit it all."""
        self.step(event)
        self.settle()
        self.commit()

    def step(self, event: ev.Event) -> None:
        """Only step it."""
        self._take(self.core.step(event, self.clock.now()))

    def settle(self) -> None:
        """Let the core look at the clock until it has no more to do now; it must come to an end."""
        for _ in range(SETTLING_ROUNDS_MAX):
            if self.core.next_deadline(self.clock.now()):
                return
            self.step(ev.TimePassed())
        raise AssertionError("the core wants to be woken at once, for ever")

    def _take(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Answer):
                self.answers[effect.connection, effect.request] = effect.message
            elif isinstance(effect, fx.Refuse):
                self.answers[effect.connection, effect.request] = effect.refusal
            elif isinstance(effect, fx.Push):
                self.pushes.append((effect.connection, effect.message))
            elif isinstance(effect, fx.LookAgain):
                self.commit()
                effect.event.found = look_up(self.journal, self.core.wants(effect.event.message))
                effect.event.asked_at = self.core.steps
                self.step(effect.event)

    def commit(self) -> None:
        """Close the batch."""
        changes = self.core.take_changes()
        if changes:
            self.journal.commit(changes)
        self.core.trim_departed(self.core.steps)

    def restart(self) -> None:
        """The broker dies and starts again on what was committed. No connection outlives that."""
        self.journal = self.journal.crash()
        self.core = self._restored()
        self.settle()
        self.commit()
