"""A broker that locks nothing: neither its directory nor, since it has none there, its journal."""

from support.faults import racer

from stoker.broker import main as broker
from stoker.broker.files import OwnerLock
from stoker.broker.memory import MemoryJournal
from stoker.cli.main import main as stoker


class NoLock(OwnerLock):
    """Opens the lock file and does not lock it."""

    def _take(self) -> None:
        return


def open_in_memory(*_: object) -> MemoryJournal:
    """The journal of nobody else."""
    return MemoryJournal()


def main() -> None:
    """As the racer, whose broker is this one."""
    for name, part in (("OwnerLock", NoLock), ("open_sqlite", open_in_memory)):
        setattr(broker, name, part)
    racer.run(stoker)
