"""What every driver of a core does besides stepping it: look things up for it, and bring it back to life.

Shared by those that drive the real core in tests: the simulation, which takes its time over it, and
the property tests, which do everything at once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core, Want
from stoker.broker.journal import Journal
from stoker.broker.recovery import rebase_jobs

AnyCore = TypeVar("AnyCore", bound=Core)


class Clock(Protocol):
    """The time of a host, and which of its boots this is."""

    boot_id: str

    def now(self) -> ev.Now: ...


def look_up(journal: Journal, wants: Sequence[Want]) -> dict[str, ev.Found]:
    """What the journal holds of everything that a core wants to know."""
    found: dict[str, ev.Found] = {}
    for want in wants:
        ids = [want.id] if want.id is not None else journal.dead_ids(want.queue or "", want.limit)
        found |= {id: journal.find(id, history=want.history, payload=want.payload) for id in ids}
    return found


def restored(
    journal: Journal, make: Callable[..., AnyCore], rules: Rules, clock: Clock, chance: Callable[[], float]
) -> AnyCore:
    """A core of a new start, with what a journal holds."""
    now = clock.now()
    recovered = journal.load(boot_id=clock.boot_id, boot_ms=now.boot_ms, wall_ms=now.wall_ms)
    core = make(rules, epoch=recovered.epoch, now=now, chance=chance)
    core.restore(
        jobs=rebase_jobs(recovered),
        sequence=recovered.sequence,
        finished_counts=recovered.finished_counts,
        kinds=recovered.kinds,
        paused=recovered.paused,
        ids_kept=recovered.ids_kept,
        ended=recovered.ended,
    )
    return core
