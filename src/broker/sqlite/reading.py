"""Look-ups in the journal. A row that does not match its checksum is a DamagedRowError."""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ...proto import limits
from ...proto.model import Outcome
from .. import aging
from ..core.effects import OUTCOME_COLUMNS, OutcomeRow
from ..core.events import Found, Remembered
from ..core.job import Job
from ..journal import Retention, outcome_maps
from . import rows, schema
from .database import Database

_OUTCOME = OUTCOME_COLUMNS.index("outcome")
_RESULT = OUTCOME_COLUMNS.index("result")

PruneRow = tuple[int, str, bytes, bool, str, str, int]
"""(number, id, body hash, id by caller, queue, state, created_boot_ms), as `events.PruneFound` has it."""


def find(database: Database, id: str, *, history: bool, payload: bool) -> Found:
    row = database.first(schema.JOB_BY_ID, (id,))
    if row is None:
        kept = database.first(schema.REMEMBERED, (id,))
        return Found(remembered=Remembered(*rows.id_from_row(kept)[:3]) if kept else None)
    job = rows.job_from_row(row)
    outcomes = _outcomes(database, job.number) if history else []
    results = [outcome[_RESULT] for outcome in outcomes if outcome[_OUTCOME] == Outcome.OK]
    return Found(
        job=job,
        history=outcome_maps(outcomes, OUTCOME_COLUMNS),
        payload=payload_of(database, job.number) if payload else None,
        result=results[-1] if results else None,
    )


def _outcomes(database: Database, number: int) -> list[OutcomeRow]:
    newest_first = database.each(schema.LAST_OUTCOMES, (number, limits.OUTCOMES_KEPT))
    return [rows.outcome_from_row(row) for row in newest_first][::-1]


def payload_of(database: Database, number: int) -> bytes | None:
    row = database.first(schema.PAYLOAD, (number,))
    return None if row is None else rows.payload_from_row(number, row)


def list_jobs(
    database: Database,
    *,
    queue: str | None,
    state: str | None,
    kind: str | None,
    after: int,
    limit: int,
) -> Sequence[Job]:
    given = {"queue": queue, "state": state, "kind": kind}
    filters = "".join(f" AND {name} = :{name}" for name, value in given.items() if value is not None)
    values = {name: value for name, value in given.items() if value is not None}
    statement = schema.LIST_JOBS.format(filters=filters)
    found = database.each(statement, {**values, "after": after, "limit": limit})
    return [rows.job_from_row(row) for row in found]


def dead_ids(database: Database, queue: str, limit: int) -> Sequence[str]:
    return [id for (id,) in database.each(schema.DEAD_IDS, (queue, limit))]


@attrs.frozen
class Pruner:
    """Finds finished rows past their time or number, on the clock of the start `epoch`."""

    database: Database
    anchors: Mapping[int, aging.Anchor]
    epoch: int
    boot_ms: int

    def find(self, retention: Retention, limit: int) -> Sequence[PruneRow]:
        done = self._over(
            schema.DONE_COUNT, schema.DONE_OLDEST, retention.done_kept_ms, retention.done_kept_max, limit
        )
        found = list(done)
        dead = self._over(
            schema.DEAD_COUNT,
            schema.DEAD_OLDEST,
            retention.dead_kept_ms,
            retention.dead_kept_max,
            limit - len(found),
        )
        return [*found, *dead]

    def _over(self, count: str, oldest: str, kept_ms: int, kept_max: int, limit: int) -> Iterator[PruneRow]:
        """Rows in finishing order, until the first that may stay: all after it may stay too."""
        too_many = self.database.number(count) - kept_max
        for index, row in enumerate(list(self.database.each(oldest, (limit,)))):
            number, id, body_hash, by_caller, queue, state, created_ms, epoch, finished_ms = row
            shift_ms = aging.shift_ms(self.anchors, epoch, self.anchors[self.epoch])
            if index >= too_many and self.boot_ms - finished_ms - shift_ms < kept_ms:
                return
            yield number, id, body_hash, bool(by_caller), queue, state, created_ms + shift_ms
