"""The tables of the journal, and every statement that touches them.

`jobs` has one column for each field of `core.job.Job`, in its order, so that anyone can read a copy
with the `sqlite3` shell: times are milliseconds, `headers` is JSON, flags are 0 and 1. `crc` is the
CRC32 of the row (see `rows.py`); SQLite itself has no checksum on its pages.

What it costs to write a job decides the indexes. The partial ones hold finished rows only: most
writes are to live rows and touch none of them. They are in finishing order, because the epoch grows
with each start and the boot clock within it.

A change of this page is a new SCHEMA_VERSION, with a step in `opening.py` that brings an older file
up to it; a file with a higher one is refused.
"""

from collections.abc import Mapping

import attrs

from ...proto.model import LIVE_STATES, State
from ..core.effects import OUTCOME_COLUMNS
from ..core.job import COLUMNS, Job

APPLICATION_ID = 0x53544B52
"""`STKR`: how `file` and this program tell a journal of stoker from any other database."""

SCHEMA_VERSION = 1

_KINDS: dict[object, str] = {
    int: "INTEGER NOT NULL",
    bool: "INTEGER NOT NULL",
    str: "TEXT NOT NULL",
    State: "TEXT NOT NULL",
    bytes: "BLOB NOT NULL",
    int | None: "INTEGER",
    Mapping[str, str] | None: "TEXT",
}
"""What a field of a job is in SQL."""

FLAGS: tuple[str, ...] = tuple(field.name for field in attrs.fields(Job) if field.type is bool)
"""Columns that SQL shows as 0 and 1."""

_JOB_COLUMNS = ", ".join(
    f"{field.name} {'INTEGER PRIMARY KEY' if field.name == 'number' else _KINDS[field.type]}"
    for field in attrs.fields(Job)
)
_OUTCOME_TYPES = {
    **dict.fromkeys(("outcome", "reason", "report", "worker", "output"), "TEXT"),
    "result": "BLOB",
}

SCHEMA = f"""
CREATE TABLE jobs ({_JOB_COLUMNS}, crc INTEGER NOT NULL);
CREATE UNIQUE INDEX jobs_id ON jobs (id);
CREATE INDEX jobs_done ON jobs (epoch, finished_boot_ms) WHERE state IN ('done', 'cancelled');
CREATE INDEX jobs_dead ON jobs (epoch, finished_boot_ms, queue) WHERE state = 'dead';
CREATE TABLE payloads (number INTEGER PRIMARY KEY, payload BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE outcomes (
    {", ".join(f"{name} {_OUTCOME_TYPES.get(name, 'INTEGER')}" for name in OUTCOME_COLUMNS)},
    crc INTEGER NOT NULL
);
CREATE INDEX outcomes_number ON outcomes (number);
CREATE TABLE ids (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, body_hash BLOB NOT NULL,
    epoch INTEGER NOT NULL, until_boot_ms INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX ids_until ON ids (epoch, until_boot_ms);
CREATE TABLE kinds (
    kind TEXT PRIMARY KEY, pool TEXT NOT NULL, policy TEXT NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE paused (queue TEXT PRIMARY KEY, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE starts (
    epoch INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, boot_ms INTEGER NOT NULL, wall_ms INTEGER NOT NULL,
    offset_ms INTEGER NOT NULL, seen_boot_ms INTEGER NOT NULL, crc INTEGER NOT NULL
);
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

META_OF_NEW = (("epoch", 0), ("logs", 0), ("sequence", 0), ("synchronous", "FULL"))
"""What `meta` holds in a journal that nobody has started on: the last epoch, how many logs were folded in
and replaced by another, the counter behind numbers and positions, and how commits are synced. No row of it
is ever missing."""

IS_COPY = "is_copy"
"""One more, 1 in a snapshot until a broker starts on it. A journal may do without."""

_LIVE = "(" + ", ".join(f"'{state}'" for state in sorted(LIVE_STATES)) + ")"
_JOB = ", ".join((*COLUMNS, "crc"))
_OUTCOME = ", ".join((*OUTCOME_COLUMNS, "crc"))
_ID = "id, number, body_hash, epoch, until_boot_ms, crc"


def _marks(count: int) -> str:
    return ", ".join("?" * count)


# --- commit -----------------------------------------------------------------------------------------

NEW_JOB = f"INSERT INTO jobs ({_JOB}) VALUES ({_marks(len(COLUMNS) + 1)})"
# Not REPLACE, which would silently remove another job that has the same id, and not `id` among what
# is set, which would touch its index at every change of a job.
PUT_JOB = f"""
{NEW_JOB}
ON CONFLICT (number) DO UPDATE SET
{", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "crc") if name not in ("number", "id"))}
"""
PUT_PAYLOAD = "INSERT INTO payloads (number, payload, crc) VALUES (?, ?, ?)"
PUT_OUTCOME = f"INSERT INTO outcomes ({_OUTCOME}) VALUES ({_marks(len(OUTCOME_COLUMNS) + 1)})"
TRIM_OUTCOMES = """
DELETE FROM outcomes WHERE number = ?1 AND rowid <=
(SELECT rowid FROM outcomes WHERE number = ?1 ORDER BY rowid DESC LIMIT 1 OFFSET ?2)
"""
DELETE_JOB = "DELETE FROM jobs WHERE number = ?"
DELETE_PAYLOAD = "DELETE FROM payloads WHERE number = ?"
DELETE_OUTCOMES = "DELETE FROM outcomes WHERE number = ?"
DELETE_ID = "DELETE FROM ids WHERE id = ?"
PUT_ID = f"INSERT INTO ids ({_ID}) VALUES ({_marks(6)})"
PUT_KIND = "INSERT OR REPLACE INTO kinds (kind, pool, policy, crc) VALUES (?, ?, ?, ?)"
DELETE_KIND = "DELETE FROM kinds WHERE kind = ?"
PAUSE = "INSERT OR IGNORE INTO paused (queue, crc) VALUES (?, ?)"
RESUME = "DELETE FROM paused WHERE queue = ?"
PUT_META = "INSERT OR REPLACE INTO meta (name, value, crc) VALUES (?, ?, ?)"

# --- load -------------------------------------------------------------------------------------------

TABLES = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
META = "SELECT name, value, crc FROM meta"
META_PAGE = "SELECT rootpage FROM sqlite_schema WHERE name = 'meta'"
_START = "epoch, boot_id, boot_ms, wall_ms, offset_ms, seen_boot_ms, crc"
STARTS = f"SELECT {_START} FROM starts ORDER BY epoch"
PUT_START = f"INSERT INTO starts ({_START}) VALUES ({_marks(7)})"
SEEN = "UPDATE starts SET seen_boot_ms = ?2, crc = ?3 WHERE epoch = ?1"
# The last start is kept whatever it names: the next one goes on from its anchor.
DELETE_STARTS = f"""
DELETE FROM starts WHERE epoch < (SELECT max(epoch) FROM starts)
AND NOT EXISTS (SELECT 1 FROM jobs WHERE state IN ('done', 'cancelled') AND jobs.epoch = starts.epoch)
AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'dead' AND jobs.epoch = starts.epoch)
AND NOT EXISTS (SELECT 1 FROM ids WHERE ids.epoch = starts.epoch)
AND epoch NOT IN (SELECT epoch FROM jobs WHERE state IN {_LIVE})
"""
LIVE_JOBS = f"SELECT {_JOB} FROM jobs WHERE state IN {_LIVE} ORDER BY number"
FINISHED_COUNTS = f"SELECT queue, state, count(*) FROM jobs WHERE state NOT IN {_LIVE} GROUP BY queue, state"
KINDS = "SELECT kind, pool, policy, crc FROM kinds"
PAUSED = "SELECT queue, crc FROM paused"
IDS_COUNT = "SELECT count(*) FROM ids"
LAST_ENDED = f"SELECT {_OUTCOME} FROM outcomes ORDER BY rowid DESC LIMIT ?"

# --- look-ups ---------------------------------------------------------------------------------------

JOB_BY_ID = f"SELECT {_JOB} FROM jobs WHERE id = ?"
REMEMBERED = f"SELECT {_ID} FROM ids WHERE id = ?"
PAYLOAD = "SELECT payload, crc FROM payloads WHERE number = ?"
LAST_OUTCOMES = f"SELECT {_OUTCOME} FROM outcomes WHERE number = ? ORDER BY rowid DESC LIMIT ?"
LIST_JOBS = f"SELECT {_JOB} FROM jobs WHERE number > :after{{filters}} ORDER BY number LIMIT :limit"
DEAD_IDS = """
SELECT id FROM jobs WHERE state = 'dead' AND queue = ? ORDER BY epoch, finished_boot_ms, number LIMIT ?
"""

# --- a look at everything -----------------------------------------------------------------------------

ALL_JOBS = f"SELECT {_JOB} FROM jobs"
ALL_PAYLOADS = "SELECT number, payload, crc FROM payloads"
ALL_OUTCOMES = f"SELECT {_OUTCOME} FROM outcomes"
ALL_IDS = f"SELECT {_ID} FROM ids"
LIVE_WITHOUT_PAYLOAD = f"""
SELECT count(*) FROM jobs WHERE state IN {_LIVE} AND number NOT IN (SELECT number FROM payloads)
"""

# --- retention --------------------------------------------------------------------------------------

_PRUNE = "number, id, body_hash, id_by_caller, queue, state, created_boot_ms, epoch, finished_boot_ms"
DONE_COUNT = "SELECT count(*) FROM jobs WHERE state IN ('done', 'cancelled')"
DONE_OLDEST = f"""
SELECT {_PRUNE} FROM jobs WHERE state IN ('done', 'cancelled')
ORDER BY epoch, finished_boot_ms, number LIMIT ?
"""
DEAD_COUNT = "SELECT count(*) FROM jobs WHERE state = 'dead'"
DEAD_OLDEST = f"""
SELECT {_PRUNE} FROM jobs WHERE state = 'dead' ORDER BY epoch, finished_boot_ms, number LIMIT ?
"""
IDS_OVER = f"SELECT {_ID} FROM ids WHERE epoch = ? AND until_boot_ms <= ? ORDER BY until_boot_ms, id LIMIT ?"
