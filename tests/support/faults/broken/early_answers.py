"""A broker that answers before the commit, on a disk on which commits take a moment."""

import time
from collections.abc import Sequence

from stoker.broker import driver, sqlite
from stoker.broker.committer import Committer
from stoker.broker.core.effects import Answer, Changes, Effect
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.main import main as stoker

COMMIT_S = 0.15


class EagerCommitter(Committer):
    """Releases answers at once."""

    def add(self, effects: Sequence[Effect]) -> None:
        self._release([effect for effect in effects if isinstance(effect, Answer)], {})
        super().add([effect for effect in effects if not isinstance(effect, Answer)])


class SlowJournal(SqliteJournal):
    """Takes its time to commit."""

    def commit(self, changes: Changes) -> None:
        time.sleep(COMMIT_S)
        super().commit(changes)


def main() -> None:
    """As `stoker`."""
    setattr(driver, Committer.__name__, EagerCommitter)
    setattr(sqlite, SqliteJournal.__name__, SlowJournal)
    stoker()
