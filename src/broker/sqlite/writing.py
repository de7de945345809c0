"""The statements of a batch, in their order. The transaction around them is the caller's."""

from collections.abc import Mapping, Sequence
from itertools import starmap

from ...proto import limits
from .. import aging
from ..core.effects import OUTCOME_COLUMNS, Changes, OutcomeRow
from ..core.job import Image
from . import rows, schema
from .database import Database

_ATTEMPT = OUTCOME_COLUMNS.index("attempt")


def apply_changes(database: Database, changes: Changes, epoch: int) -> int:
    """Write everything of a batch; how many more ids are remembered than before."""
    # Deletions first: the id of a job that is gone may be taken anew in the same batch.
    ids_more = _delete(database, changes.deleted, epoch) if changes.deleted else 0
    gone = frozenset(number for number, _, _, _ in changes.deleted)
    _put_jobs(database, changes.images, changes.payloads, gone)
    # A statement that has nothing to do still costs some microseconds, of which a small batch has few.
    if changes.outcomes:
        _put_outcomes(database, [row for row in changes.outcomes if row[0] not in gone])
    if changes.kinds:
        database.run_many(schema.PUT_KIND, starmap(rows.kind_row, changes.kinds))
    if changes.kinds_forgotten:
        database.run_many(schema.DELETE_KIND, [(kind,) for kind in changes.kinds_forgotten])
    for queue, is_paused in changes.paused:
        if is_paused:
            database.run(schema.PAUSE, rows.sealed((queue,)))
        else:
            database.run(schema.RESUME, (queue,))
    if changes.sequence is not None:
        database.run(schema.PUT_META, rows.sealed(("sequence", changes.sequence)))
    return ids_more


def _put_jobs(
    database: Database,
    images: Sequence[Image],
    payloads: Sequence[tuple[int, bytes]],
    gone: frozenset[int],
) -> None:
    if gone:
        images = [image for image in images if image[0] not in gone]
        payloads = [item for item in payloads if item[0] not in gone]
    # A job is new when its payload is. A plain insert takes a fifth less time than one that may update.
    new = {number for number, _ in payloads}
    if new:
        database.run_many(schema.NEW_JOB, rows.job_rows([image for image in images if image[0] in new]))
        database.run_many(schema.PUT_PAYLOAD, starmap(rows.payload_row, payloads))
    if len(new) < len(images):
        database.run_many(schema.PUT_JOB, rows.job_rows([image for image in images if image[0] not in new]))


def _put_outcomes(database: Database, outcomes: Sequence[OutcomeRow]) -> None:
    database.run_many(schema.PUT_OUTCOME, map(rows.sealed, outcomes))
    # Few jobs come so far, and a read takes only the newest anyhow: this keeps the table small.
    long = {row[0] for row in outcomes if row[_ATTEMPT] > limits.OUTCOMES_KEPT}
    if long:
        database.run_many(schema.TRIM_OUTCOMES, [(number, limits.OUTCOMES_KEPT) for number in sorted(long)])


def _delete(database: Database, deleted: Sequence[tuple[int, str, bytes, int]], epoch: int) -> int:
    numbers = [(number,) for number, _, _, _ in deleted]
    for statement in (schema.DELETE_JOB, schema.DELETE_PAYLOAD, schema.DELETE_OUTCOMES):
        database.run_many(statement, numbers)
    before = database.changed()
    database.run_many(schema.DELETE_ID, [(id,) for _, id, _, _ in deleted])
    forgotten = database.changed() - before
    kept = [(id, number, body_hash, epoch, until) for number, id, body_hash, until in deleted if until]
    database.run_many(schema.PUT_ID, map(rows.sealed, kept))
    return len(kept) - forgotten


def forget(
    database: Database, anchors: Mapping[int, aging.Anchor], epoch: int, *, boot_ms: int, limit: int
) -> int:
    """Delete remembered ids whose time is over, of the earliest starts first; how many were."""
    over: list[tuple[str]] = []
    for row_epoch in sorted(anchors):
        until_ms = boot_ms - aging.shift_ms(anchors, row_epoch, anchors[epoch])
        found = database.each(schema.IDS_OVER, (row_epoch, until_ms, limit - len(over)))
        # Looked at before they go: an id that is forgotten too early may run its job a second time.
        over += [(rows.id_from_row(row)[0],) for row in found]
    database.run_many(schema.DELETE_ID, over)
    return len(over)
