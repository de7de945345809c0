"""A broker that copies its database's file as `cp` would, without what is still in the log."""

import shutil
from collections.abc import Generator

from stoker.broker import sqlite
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.main import main as stoker


class CopyingJournal(SqliteJournal):
    """See the module."""

    def snapshot_steps(self, path: str) -> Generator[None, None, int]:
        shutil.copyfile(self.path, path)
        yield
        return 0


def main() -> None:
    """As `stoker`."""
    sqlite.__dict__.update(SqliteJournal=CopyingJournal)
    stoker()
