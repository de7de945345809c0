"""A broker that does not sync a batch of more than forty rows, so that it is stored faster."""

from stoker.broker import sqlite
from stoker.broker.core.effects import Changes
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.main import main as stoker

ROWS = 40
"""Far more than any batch has but that of a flood, which is cut into some of a hundred or less."""


class HastyJournal(SqliteJournal):
    """Syncs small batches only."""

    def commit(self, changes: Changes) -> None:
        is_large = max(len(changes.images), len(changes.deleted)) > ROWS
        with self._using("being broken") as database:
            database.run(f"PRAGMA synchronous = {'NORMAL' if is_large else 'FULL'}")
        super().commit(changes)


def main() -> None:
    """As `stoker`."""
    setattr(sqlite, SqliteJournal.__name__, HastyJournal)
    stoker()
