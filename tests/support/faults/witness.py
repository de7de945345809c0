"""What must be on disk: beside a journal on SQLite, every state that its batches made, and when.

The states are those of the journal in memory, which the conformance suite holds to the same behaviour.
So of any file one can say in which of the states it is; in none of them no fault may ever leave it. An
instant is a position on a tape of what was asked of the disk.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import attrs

from stoker.broker import aging
from stoker.broker.core.effects import Changes, OutcomeRow
from stoker.broker.core.job import image
from stoker.broker.journal import Recovered
from stoker.broker.memory import Disk, KeptId, MemoryJournal
from stoker.broker.sqlite import SqliteJournal, rows, schema
from stoker.broker.sqlite.database import Database

Content = dict[str, Any]
"""All that a journal holds of jobs, ids, kinds, pauses and numbers; the starts are no part of it."""


class ExaminedJournal(SqliteJournal):
    """A journal on SQLite that can also be read whole, and left as SIGKILL leaves it."""

    def kill(self) -> None:
        """Let go of the files without another write."""
        self._abandon()

    def faults(self) -> list[str]:
        """What SQLite's own check says against the file."""
        with self._using("checking it") as database:
            said = [str(row[0]) for row in database.each("PRAGMA integrity_check(3)")]
        return [] if said == ["ok"] else said

    def content(self) -> Content:
        """Everything, each row with its checksum checked."""
        with self._using("reading all of it") as database:
            return _content(database)


def _content(database: Database) -> Content:
    outcomes: dict[int, list[OutcomeRow]] = {}
    for row in map(rows.outcome_from_row, database.each(f"{schema.ALL_OUTCOMES} ORDER BY rowid")):
        outcomes.setdefault(row[0], []).append(row)
    meta = {row[0]: row[1] for row in database.each(schema.META)}
    ids = map(rows.id_from_row, database.each("SELECT * FROM ids"))
    kinds = map(rows.kind_from_row, database.each(schema.KINDS))
    payloads = database.each(schema.ALL_PAYLOADS)
    return {
        "jobs": {row[0]: image(rows.job_from_row(row)) for row in database.each(schema.ALL_JOBS)},
        "payloads": {number: rows.payload_from_row(number, tuple(row)) for number, *row in payloads},
        "outcomes": outcomes,
        "ids": {id: KeptId(*row) for id, *row in ids},
        "kinds": {kind: (pool, policy) for kind, pool, policy in kinds},
        "paused": {queue for queue, _ in database.each(schema.PAUSED)},
        "sequence": meta["sequence"],
    }


def content_of(disk: Disk) -> Content:
    """The same of a journal in memory."""
    return {
        "jobs": disk.images,
        "payloads": disk.payloads,
        "outcomes": {number: [row for _, row in placed] for number, placed in disk.outcomes.items()},
        "ids": disk.ids,
        "kinds": disk.kinds,
        "paused": disk.paused,
        "sequence": disk.sequence,
    }


def differences(found: Content, wanted: Content) -> str:
    """In which parts two contents differ, and in which keys, shortly."""
    parts = [_difference(name, found[name], wanted[name]) for name in wanted if found[name] != wanted[name]]
    return "; ".join(parts)


def _difference(name: str, found: Any, wanted: Any) -> str:
    if name in ("paused", "sequence"):
        return f"{name} {found!r}, not {wanted!r}"
    keys: list[Any] = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
    return f"{name} {keys[:10]!r}"


def _placed(outcomes: Sequence[OutcomeRow]) -> list[tuple[int, OutcomeRow]]:
    """Outcomes as the journal in memory has them, each with a place."""
    return list(enumerate(outcomes))


class Mark(NamedTuple):
    """From a position of the tape on, the disk is in one of the states `first` to `last`."""

    position: int
    first: int
    last: int
    epoch: int
    """The highest that any start was told of."""


@attrs.define
class Witness:
    """See the module. `is_durable`: a batch that was stored is safe from power cuts (synchronous=FULL)."""

    position: Callable[[], int]
    is_durable: bool = True
    states: list[Content] = attrs.Factory(lambda: [content_of(Disk())])
    """What each batch made of the journal, and what each start found."""
    marks: list[Mark] = attrs.Factory(lambda: [Mark(0, 0, 0, 0)])
    faults: list[str] = attrs.Factory(list[str])
    _disk: Disk = attrs.Factory(Disk)

    def candidates(self, mark: Mark) -> Sequence[Content]:
        """The states that are allowed, the newest first."""
        return self.states[mark.first : mark.last + 1][::-1]

    def loaded(self, journal: ExaminedJournal, recovered: Recovered) -> None:
        """A start has read the journal: it must be in a state that it may be in; that one counts now."""
        found, last = journal.content(), self.marks[-1]
        candidates = self.candidates(last)
        if found not in candidates:
            self.faults.append(
                f"the journal is in no state that was made: {differences(found, candidates[0])}"
            )
        if recovered.epoch <= last.epoch:
            self.faults.append(f"epoch {recovered.epoch} was begun again, after {last.epoch}")
        self._disk = Disk(
            dict(found["jobs"]),
            {job[1]: number for number, job in found["jobs"].items()},
            dict(found["payloads"]),
            {number: _placed(each) for number, each in found["outcomes"].items()},
            0,
            dict(found["ids"]),
            dict(found["kinds"]),
            set(found["paused"]),
            {},
            found["sequence"],
            recovered.epoch,
        )
        self.states.append(found)
        self._mark(len(self.states) - 1, len(self.states) - 1, recovered.epoch)

    def _mark(self, first: int, last: int, epoch: int | None = None) -> None:
        epoch = self.marks[-1].epoch if epoch is None else epoch
        self.marks.append(Mark(self.position(), first, last, epoch))

    @contextmanager
    def storing(self, after: Disk) -> Generator[None]:
        """A transaction that leads to that state: it may be on disk from now on, and must be afterwards."""
        self.states.append(content_of(after))
        last = len(self.states) - 1
        self._mark(self.marks[-1].first, last)
        yield
        self._disk = after
        self._mark(last if self.is_durable else self.marks[-1].first, last)

    def folded(self) -> None:
        """The log has been folded into the file, with syncs."""
        self._mark(self.marks[-1].last, self.marks[-1].last)

    def after_commit(self, changes: Changes) -> Disk:
        """What a batch makes of the present state."""
        after = self._disk.copy()
        MemoryJournal(after).commit(changes)
        return after

    def after_forgetting(self, over: Sequence[str]) -> Disk:
        """The present state without these remembered ids."""
        after = self._disk.copy()
        for id in over:
            del after.ids[id]
        return after

    @property
    def ids(self) -> dict[str, KeptId]:
        """Ids that are remembered beyond their rows."""
        return self._disk.ids


class WitnessedJournal(ExaminedJournal):
    """A journal that tells its witness of everything that changes the disk."""

    def __init__(self, path: str, witness: Witness, **settings: Any) -> None:
        super().__init__(path, **settings)
        self._witness = witness

    def load(self, *, boot_id: str, boot_ms: int, wall_ms: int) -> Recovered:
        recovered = super().load(boot_id=boot_id, boot_ms=boot_ms, wall_ms=wall_ms)
        self._witness.loaded(self, recovered)
        return recovered

    def commit(self, changes: Changes) -> None:
        with self._witness.storing(self._witness.after_commit(changes)):
            super().commit(changes)

    def forget_ids(self, *, boot_ms: int, limit: int) -> int:
        here = self._anchors[self._epoch]
        over = sorted(
            (kept.epoch, kept.until_boot_ms, id)
            for id, kept in self._witness.ids.items()
            if kept.until_boot_ms + aging.shift_ms(self._anchors, kept.epoch, here) <= boot_ms
        )
        after = self._witness.after_forgetting([id for _, _, id in over[:limit]])
        with self._witness.storing(after):
            return super().forget_ids(boot_ms=boot_ms, limit=limit)

    def _checkpoint(self, mode: int) -> None:
        super()._checkpoint(mode)
        self._witness.folded()
