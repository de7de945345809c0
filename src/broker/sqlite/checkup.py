"""A look at a whole journal that no broker has open: SQLite's own checks, every checksum, the log.

Bit rot is mostly invisible to SQLite, which has no checksum on its pages, and a start reads only what
lives. Here every row of every job is read. Nothing is changed and nothing mended; all that is found is
told, not only the first.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial

import apsw
import attrs

from ..journal import JournalBrokenError
from . import rows, schema
from .database import Database, Row
from .errors import meaning, refusal
from .loading import refuse_damage, refuse_loss, refuse_other_tables
from .opening import check_version, examine
from .readonly import read_only

DAMAGED_ROWS_SHOWN = 5
"""Of each table; the others are counted."""


@attrs.frozen
class Checkup:
    """What was found."""

    jobs: int
    payloads: int
    outcomes: int
    damage: tuple[str, ...]
    """A line for each thing that is wrong; it begins with the path."""


def check_up(path: str, uid: int) -> Checkup:
    """Look at the journal that a broker of that user would open.

    A StartRefusedError for what is none, FileNotFoundError if there is no such file.
    """
    examine(path, uid)
    tables = list(_tables())
    with _explained(path), read_only(path) as database:
        # One page, so that a file which cannot be read at all is an error and not a list of damage.
        database.number("PRAGMA schema_version")
        damage = list(_looks(database, path))
        for table in tables:
            damage += _told(partial(table.read, database), database, path)
            damage += table.lines(path)
    jobs, payloads, outcomes, *_ = (table.count for table in tables)
    # A file that was cut is met again by each table.
    return Checkup(jobs, payloads, outcomes, tuple(dict.fromkeys(damage)))


@contextmanager
def _explained(path: str) -> Generator[None]:
    """What an error met while opening says of the file."""
    try:
        yield
    except apsw.Error as error:
        raise refusal(error, path) or meaning(error, path, "looking at it", 0) from error


def _looks(database: Database, path: str) -> Iterator[str]:
    looks: tuple[Callable[[], object], ...] = (
        lambda: refuse_loss(database, path),
        # A log may hold a newer first page than the file.
        lambda: check_version(
            path, database.number("PRAGMA application_id"), database.number("PRAGMA user_version")
        ),
        lambda: refuse_other_tables(database, path),
        lambda: refuse_damage(database, path),
        lambda: _refuse_lost_payloads(database, path),
    )
    for look in looks:
        yield from _told(look, database, path)


def _told(look: Callable[[], object], database: Database, path: str) -> Iterator[str]:
    try:
        look()
    except JournalBrokenError as error:
        yield str(error)
    except (rows.DamagedRowError, UnicodeDecodeError) as error:
        yield f"{path}: is damaged: {error}"
    except apsw.Error as error:
        yield str(meaning(error, path, "looking at it", database.connection.system_errno))


def _refuse_lost_payloads(database: Database, path: str) -> None:
    lost = database.number(schema.LIVE_WITHOUT_PAYLOAD)
    if lost:
        raise JournalBrokenError(f"{path}: is damaged: {lost} jobs have lost their payload")


class _Table:
    """One table of rows with checksums, read from its first to its last."""

    def __init__(self, name: str, statement: str, decode: Callable[[Row], object]) -> None:
        self.name = name
        self.count = 0
        self.damaged: list[str] = []
        self._statement = statement
        self._decode = decode

    def read(self, database: Database) -> None:
        for row in database.each(self._statement):
            self.count += 1
            try:
                self._decode(row)
            except rows.DamagedRowError as error:
                self.damaged.append(str(error))

    def lines(self, path: str) -> Iterator[str]:
        for says in self.damaged[:DAMAGED_ROWS_SHOWN]:
            yield f"{path}: is damaged: {says}"
        if len(self.damaged) > DAMAGED_ROWS_SHOWN:
            count = len(self.damaged)
            yield f"{path}: is damaged: {count} rows of {self.name} in all do not match their checksums"


def _payload_from_row(row: Row) -> bytes:
    number, *payload = row
    # SQLite itself sees to that, unless what it knows of the table is damaged.
    if type(number) is not int:
        raise rows.DamagedRowError(f"a payload has the number {number!r}")
    return rows.payload_from_row(number, tuple(payload))


def _tables() -> Iterator[_Table]:
    yield _Table("jobs", schema.ALL_JOBS, rows.job_from_row)
    yield _Table("payloads", schema.ALL_PAYLOADS, _payload_from_row)
    yield _Table("outcomes", schema.ALL_OUTCOMES, rows.outcome_from_row)
    yield _Table("ids", schema.ALL_IDS, rows.id_from_row)
    yield _Table("kinds", schema.KINDS, rows.kind_from_row)
    for name, statement in (("paused", schema.PAUSED), ("starts", schema.STARTS), ("meta", schema.META)):
        yield _Table(name, statement, partial(rows.unsealed, what=f"a row of {name}"))
