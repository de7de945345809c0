"""A journal in memory on a disk that is full when a test says so."""

from stoker.broker.core.effects import Changes
from stoker.broker.journal import JournalFullError
from stoker.broker.memory import MemoryJournal


class FullJournal(MemoryJournal):
    """Stores nothing while `is_full`."""

    is_full = False

    def commit(self, changes: Changes) -> None:
        if self.is_full:
            raise JournalFullError("full")
        super().commit(changes)
