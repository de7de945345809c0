"""A broker that keeps a little of everything: memory and a descriptor of each batch, and the log unfolded."""

import os
from typing import Literal

from stoker.broker import sqlite
from stoker.broker.core.effects import Changes
from stoker.broker.sqlite import SqliteJournal
from stoker.cli.main import main as stoker

BYTES_EACH = 500_000

_kept: list[bytes] = []


class HoardingJournal(SqliteJournal):
    """See the module."""

    def __init__(self, path: str, *, synchronous: Literal["FULL", "NORMAL"], check: bool) -> None:
        super().__init__(path, synchronous=synchronous, check=check, wal_bytes_checkpoint=1 << 40)

    def commit(self, changes: Changes) -> None:
        super().commit(changes)
        _kept.append(os.urandom(BYTES_EACH))
        os.dup(0)


def main() -> None:
    """As `stoker`."""
    sqlite.__dict__.update(SqliteJournal=HoardingJournal)
    stoker()
