"""A journal in memory, for tests and for the simulation: same behaviour, no disk.

`crash` gives the journal that the next start of a broker would find: what was committed and not a
bit more. `fail_commit` makes one commit fail on purpose, so that a run with a storage error can be
repeated exactly. It must not become a second home of rules: it stores and finds, nothing else.
"""

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import attrs
import msgpack

from ..proto import limits
from ..proto.model import FINAL_STATES, LIVE_STATES, Outcome, State
from . import aging
from .core.effects import OUTCOME_COLUMNS, Changes, OutcomeRow
from .core.events import Found, Remembered
from .core.job import COLUMNS, Image, Job, from_image
from .journal import (
    JournalBrokenError,
    JournalFullError,
    Recovered,
    Retention,
    Start,
    ended,
    exhaust,
    outcome_maps,
)

_ID = COLUMNS.index("id")
_STATE = COLUMNS.index("state")
_ATTEMPT = OUTCOME_COLUMNS.index("attempt")
_NUMBER = OUTCOME_COLUMNS.index("number")
_OUTCOME = OUTCOME_COLUMNS.index("outcome")
_RESULT = OUTCOME_COLUMNS.index("result")


class KeptId(NamedTuple):
    """An id that outlives its row, until an instant of the boot clock of its epoch."""

    number: int
    body_hash: bytes
    epoch: int
    until_boot_ms: int


@attrs.define
class Disk:
    """What would be on disk. Images and rows are tuples that nobody changes."""

    images: dict[int, Image] = attrs.Factory(dict[int, Image])
    numbers: dict[str, int] = attrs.Factory(dict[str, int])
    payloads: dict[int, bytes] = attrs.Factory(dict[int, bytes])
    outcomes: dict[int, list[tuple[int, OutcomeRow]]] = attrs.Factory(dict[int, list[tuple[int, OutcomeRow]]])
    """By job, each with its place among all that were ever written."""
    outcomes_written: int = 0
    ids: dict[str, KeptId] = attrs.Factory(dict[str, KeptId])
    kinds: dict[str, tuple[str, dict[str, Any]]] = attrs.Factory(dict[str, tuple[str, dict[str, Any]]])
    paused: set[str] = attrs.Factory(set[str])
    anchors: dict[int, aging.Anchor] = attrs.Factory(dict[int, aging.Anchor])
    sequence: int = 0
    epoch: int = 0

    def copy(self) -> "Disk":
        return Disk(
            dict(self.images),
            dict(self.numbers),
            dict(self.payloads),
            {number: list(rows) for number, rows in self.outcomes.items()},
            self.outcomes_written,
            dict(self.ids),
            {kind: (pool, dict(policy)) for kind, (pool, policy) in self.kinds.items()},
            set(self.paused),
            dict(self.anchors),
            self.sequence,
            self.epoch,
        )


@attrs.define
class _Fault:
    commits_left: int
    error: type[JournalFullError | JournalBrokenError]
    stored: bool


class MemoryJournal:
    """See the module and `journal.Journal`."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._fault: _Fault | None = None
        self._broken = False
        self._commits = 0

    def crash(self) -> "MemoryJournal":
        """The journal of the next start: only what was committed. This one may be thrown away."""
        return MemoryJournal(self._disk.copy())

    def fail_commit(
        self, nth: int, error: type[JournalFullError | JournalBrokenError], *, stored: bool = False
    ) -> None:
        """Let the nth commit from now fail, once. `stored`: it broke after the data was down, as a
        failed sync may, so that the next start finds a batch that nobody was told of."""
        assert nth >= 1
        assert not (stored and error is JournalFullError), "a full disk stores nothing"
        self._fault = _Fault(nth, error, stored)

    def load(self, *, boot_id: str, boot_ms: int, wall_ms: int) -> Recovered:
        self._require_sound()
        disk = self._disk
        start = Start(disk.epoch + 1, boot_id, boot_ms, wall_ms)
        disk.anchors[start.epoch] = aging.following(disk.anchors.get(disk.epoch), start)
        disk.epoch = start.epoch
        jobs = [from_image(image) for _, image in sorted(disk.images.items())]
        live = [job for job in jobs if job.state in LIVE_STATES]
        epochs = {job.epoch for job in live} | {start.epoch}
        return Recovered(
            epoch=start.epoch,
            sequence=disk.sequence,
            starts={epoch: disk.anchors[epoch].start for epoch in epochs},
            jobs=live,
            finished_counts=Counter(
                (job.queue, job.state.value) for job in jobs if job.state in FINAL_STATES
            ),
            kinds={kind: (pool, dict(policy)) for kind, (pool, policy) in disk.kinds.items()},
            paused=frozenset(disk.paused),
            ids_kept=len(disk.ids),
            ended=self._last_ended(),
        )

    def _last_ended(self) -> list[tuple[str, tuple[int, int], str]]:
        in_order = sorted(placed for rows in self._disk.outcomes.values() for placed in rows)
        maps = outcome_maps((row for _, row in in_order[-limits.ENDED_RECOVERED :]), OUTCOME_COLUMNS)
        return [
            ended(row["worker"], (row["token_epoch"], row["token_counter"]), row["outcome"]) for row in maps
        ]

    def commit(self, changes: Changes) -> None:
        self._require_sound()
        fault = self._due_fault()
        if fault is None or fault.stored:
            self._apply(changes)
        if fault is not None:
            self._broken = issubclass(fault.error, JournalBrokenError)
            raise fault.error("a failure that was asked for")
        self._commits += 1

    def _due_fault(self) -> _Fault | None:
        fault = self._fault
        if fault is None:
            return None
        fault.commits_left -= 1
        if fault.commits_left:
            return None
        self._fault = None
        return fault

    def _apply(self, changes: Changes) -> None:
        disk = self._disk
        gone = {number for number, _, _, _ in changes.deleted}
        for number, id, body_hash, until_boot_ms in changes.deleted:
            self._delete(number, id)
            if until_boot_ms:
                disk.ids[id] = KeptId(number, body_hash, disk.epoch, until_boot_ms)
        for image in changes.images:
            if image[0] not in gone:
                disk.images[image[0]] = image
                disk.numbers[image[_ID]] = image[0]
        disk.payloads.update((number, data) for number, data in changes.payloads if number not in gone)
        long: set[int] = set()
        for row in changes.outcomes:
            if row[_NUMBER] not in gone:
                disk.outcomes_written += 1
                disk.outcomes.setdefault(row[_NUMBER], []).append((disk.outcomes_written, row))
                if row[_ATTEMPT] > limits.OUTCOMES_KEPT:
                    long.add(row[_NUMBER])
        for number in long:
            del disk.outcomes[number][: -limits.OUTCOMES_KEPT]
        disk.kinds.update((kind, (pool, dict(policy))) for kind, pool, policy in changes.kinds)
        for kind in changes.kinds_forgotten:
            disk.kinds.pop(kind, None)
        for queue, is_paused in changes.paused:
            (disk.paused.add if is_paused else disk.paused.discard)(queue)
        if changes.sequence is not None:
            disk.sequence = changes.sequence

    def _delete(self, number: int, id: str) -> None:
        disk = self._disk
        if disk.images.pop(number, None) is not None:
            del disk.numbers[id]
        disk.payloads.pop(number, None)
        disk.outcomes.pop(number, None)
        disk.ids.pop(id, None)

    def check_place(self) -> None:
        """It is nowhere, and cannot be lost."""
        self._require_sound()

    def find(self, id: str, *, history: bool = False, payload: bool = False) -> Found:
        self._require_sound()
        disk = self._disk
        number = disk.numbers.get(id)
        if number is None:
            kept = disk.ids.get(id)
            return Found(remembered=Remembered(id, kept.number, kept.body_hash) if kept else None)
        newest = disk.outcomes.get(number, [])[-limits.OUTCOMES_KEPT :]
        rows = [row for _, row in newest] if history else []
        results = [row[_RESULT] for row in rows if row[_OUTCOME] == Outcome.OK]
        return Found(
            job=from_image(disk.images[number]),
            history=outcome_maps(rows, OUTCOME_COLUMNS),
            payload=disk.payloads.get(number) if payload else None,
            result=results[-1] if results else None,
        )

    def payload(self, number: int) -> bytes:
        self._require_sound()
        return self._disk.payloads[number]

    def list_jobs(
        self, *, queue: str | None, state: str | None, kind: str | None, after: int, limit: int
    ) -> Sequence[Job]:
        self._require_sound()

        def matches(job: Job) -> bool:
            return (
                job.number > after
                and queue in (None, job.queue)
                and state in (None, job.state)
                and kind in (None, job.kind)
            )

        jobs = (from_image(image) for _, image in sorted(self._disk.images.items()))
        return list(islice(filter(matches, jobs), limit))

    def dead_ids(self, queue: str, limit: int) -> Sequence[str]:
        self._require_sound()
        dead = self._finished(lambda image: image[_STATE] == State.DEAD)
        return [job.id for job in dead if job.queue == queue][:limit]

    def _finished(self, wanted: Callable[[Image], bool]) -> list[Job]:
        """Finished jobs in finishing order."""
        jobs = [from_image(image) for image in self._disk.images.values() if wanted(image)]
        return sorted(jobs, key=lambda job: (job.epoch, job.finished_boot_ms, job.number))

    def prunable(
        self, retention: Retention, *, boot_ms: int, limit: int
    ) -> Sequence[tuple[int, str, bytes, bool, str, str, int]]:
        self._require_sound()
        done = self._finished(lambda image: image[_STATE] in (State.DONE, State.CANCELLED))
        dead = self._finished(lambda image: image[_STATE] == State.DEAD)
        over = [
            *self._over(done, retention.done_kept_ms, retention.done_kept_max, boot_ms),
            *self._over(dead, retention.dead_kept_ms, retention.dead_kept_max, boot_ms),
        ]
        return [
            (job.number, job.id, job.body_hash, job.id_by_caller, job.queue, job.state.value, self._here(job))
            for job in over[:limit]
        ]

    def _over(self, jobs: Sequence[Job], kept_ms: int, kept_max: int, boot_ms: int) -> Iterator[Job]:
        for index, job in enumerate(jobs):
            age_ms = boot_ms - job.finished_boot_ms - self._shift_ms(job.epoch)
            if index < len(jobs) - kept_max or age_ms >= kept_ms:
                yield job

    def _here(self, job: Job) -> int:
        return job.created_boot_ms + self._shift_ms(job.epoch)

    def _shift_ms(self, epoch: int) -> int:
        return aging.shift_ms(self._disk.anchors, epoch, self._disk.anchors[self._disk.epoch])

    def forget_ids(self, *, boot_ms: int, limit: int) -> int:
        self._require_sound()
        disk = self._disk
        anchor = disk.anchors[disk.epoch]
        disk.anchors[disk.epoch] = aging.seen(anchor, boot_ms) or anchor
        in_order = sorted(disk.ids.items(), key=lambda item: (item[1].epoch, item[1].until_boot_ms))
        over = (id for id, kept in in_order if kept.until_boot_ms + self._shift_ms(kept.epoch) <= boot_ms)
        forgotten = list(islice(over, limit))
        for id in forgotten:
            del disk.ids[id]
        return len(forgotten)

    def snapshot(self, path: str) -> int:
        return exhaust(self.snapshot_steps(path))

    def snapshot_steps(self, path: str) -> Generator[None, None, int]:
        self._require_sound()
        yield
        body: bytes = msgpack.packb([list(image) for image in self._disk.images.values()])
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            return file.write(body)

    def checkpoint_if_due(self) -> bool:
        self._require_sound()
        return False

    def statistics(self) -> Mapping[str, int]:
        used_bytes = sum(map(len, self._disk.payloads.values()))
        return {
            "journal_bytes": used_bytes,
            "wal_bytes": 0,
            "commits": self._commits,
            "ids_kept": len(self._disk.ids),
        }

    def close(self) -> None:
        self._broken = True

    def _require_sound(self) -> None:
        if self._broken:
            raise JournalBrokenError("the journal is closed or broken: only a new start can go on")
