"""A broker that answers before the commit, on a disk on which commits take a moment."""

import time

from support.committers import EagerCommitter

from stoker.broker import driver, sqlite
from stoker.broker.committer import Committer
from stoker.broker.core.effects import Changes
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.main import main as stoker

COMMIT_S = 0.15


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
