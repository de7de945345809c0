"""Bringing a core to life from what a journal holds, for those that drive the real one in tests.

Shared by the simulation, which takes its time over it, and the property tests, which do everything at
once.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.broker.journal import Journal
from stoker.broker.recovery import restore

AnyCore = TypeVar("AnyCore", bound=Core)


class Clock(Protocol):
    """The time of a host, and which of its boots this is."""

    boot_id: str

    def now(self) -> ev.Now: ...


def restored(
    journal: Journal, make: Callable[..., AnyCore], rules: Rules, clock: Clock, chance: Callable[[], float]
) -> AnyCore:
    """A core of a new start, with what a journal holds."""
    now = clock.now()
    recovered = journal.load(boot_id=clock.boot_id, boot_ms=now.boot_ms, wall_ms=now.wall_ms)
    core = make(rules, epoch=recovered.epoch, now=now, chance=chance)
    restore(core, recovered)
    return core
