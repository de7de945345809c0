"""The SQLite connection as the journal uses it: four ways to run a statement, with types.

A statement is always run to its end here (`each` excepted, whose caller exhausts it), because one
left half-way keeps a lock that a checkpoint would have to wait for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import apsw

Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any]


class Database:
    """One connection. Errors are apsw's; `errors.meaning` says what they mean."""

    def __init__(self, path: str, flags: int, vfs: str) -> None:
        self.connection = apsw.Connection(path, flags=flags, vfs=vfs or None)
        # The stubs of apsw name a buffer type that Python 3.11 does not have.
        self._handle: Any = self.connection

    def run(self, statements: str, values: Values = ()) -> None:
        """Run statements, whatever they answer."""
        self._handle.execute(statements, values).fetchall()

    def run_many(self, statement: str, rows: Iterable[Values]) -> None:
        """Run a statement once for each row."""
        self._handle.executemany(statement, rows)

    def first(self, statement: str, values: Values = ()) -> Row | None:
        """The first row of the answer, if there is any."""
        found: list[Row] = self._handle.execute(statement, values).fetchall()
        return found[0] if found else None

    def number(self, statement: str) -> int:
        """The one number of the answer."""
        row = self.first(statement)
        assert row is not None
        return int(row[0])

    def each(self, statement: str, values: Values = ()) -> Iterator[Row]:
        """The rows of the answer. The caller takes them all."""
        rows: Iterator[Row] = self._handle.execute(statement, values)
        return rows

    def changed(self) -> int:
        """Rows inserted, updated and deleted since the connection was opened."""
        return self.connection.total_changes()

    def checkpoint(self, mode: int) -> tuple[int, int]:
        """(pages in the log, pages of them folded in) afterwards."""
        return self.connection.wal_checkpoint(mode=mode)

    def close(self) -> None:
        """Let go of the file. What was to be on disk is there already, or was given up."""
        with suppress(apsw.Error):
            self.connection.close()
