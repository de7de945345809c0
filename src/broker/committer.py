"""Group commit: what the core decided, made durable before any of it is shown.

Effects gather in the open batch. `flush` hands the batch over, with the core's changes since the
last one, to whoever runs the journal; once its commit is synced, its effects are released, in the
order in which they were decided. One batch is in flight at a time, and the next gathers meanwhile:
that is the group.

An effect that belongs to no change (`exists`, `conflict`, `lease_lost`) may still show a change of
the batch before it. So it waits for the batch in flight; only when nothing is in flight and nothing
has changed does a batch go straight through.

Look-ups are read behind the batch that is open when they are asked for, so a reader sees its own
writes. Pushes need the payloads of their jobs: those not in memory are read in the same visit to the
journal, so nothing is released in parts.

A full disk keeps the batch: it is tried again, first after room was made, then each time `retry` is
called, and answers nothing until it is stored. Any other storage error ends the broker:
memory is ahead of the disk then. So there is no way from an error back to the core.

Knows no sockets, no threads and no clock: the simulation runs this very code.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..proto import limits, work
from ..proto.messages import Message
from .core.effects import Answer, Changes, Effect, Push
from .journal import Journal, JournalFullError
from .payloads import PayloadCache
from .thread import JournalRunner

SMALL_ROWS = 128
SMALL_BYTES = 64 * limits.KIB
"""Writing so many takes about as long as one sync."""

Look = Callable[[Journal], Any]
_Question = tuple[Look, Callable[[Any], None]]
Release = Callable[[Sequence[Effect], Mapping[int, bytes]], None]
"""Called with effects whose batch is stored, and the payloads of their pushes by job number."""


class Reports(Protocol):
    """What the committer says to its owner, besides releasing effects."""

    def commit_begun(self) -> None:
        """A batch is handed over to the journal, for the first time or again."""
        ...

    def commit_full(self) -> None:
        """A batch does not fit on the disk, not even without the ballast. Call `retry` later."""
        ...

    def commit_stored(self) -> None:
        """A batch is stored; what it held back is released next."""
        ...

    def commit_failed(self, error: BaseException) -> None:
        """The journal is broken; nothing more will be released."""
        ...


class _Batch:
    """What is handed over together."""

    __slots__ = ("changes", "effects", "looks", "missing", "payloads")

    def __init__(
        self,
        effects: list[Effect],
        changes: Changes,
        payloads: dict[int, bytes],
        missing: list[int],
        looks: list[_Question],
    ) -> None:
        self.effects = effects
        self.changes = changes
        self.payloads = payloads
        self.missing = missing
        self.looks = looks

    @property
    def is_small(self) -> bool:
        """It writes a few rows of few bytes, and reads none."""
        changes = self.changes
        rows = len(changes.images) + len(changes.outcomes) + len(changes.deleted)
        return (
            not (self.missing or self.looks)
            and rows <= SMALL_ROWS
            and sum(len(payload) for _, payload in changes.payloads) <= SMALL_BYTES
        )

    def store(self, journal: Journal) -> None:
        """The part that changes the disk."""
        if self.changes:
            journal.commit(self.changes)

    def look(self, journal: Journal) -> tuple[dict[int, bytes], list[Any]]:
        """The part that only reads, after it."""
        loaded = {number: journal.payload(number) for number in self.missing}
        return loaded, [look(journal) for look, _ in self.looks]


class Committer:
    """Holds effects back until what they may show is on disk."""

    def __init__(
        self,
        runner: JournalRunner,
        take_changes: Callable[[], Changes],
        release: Release,
        reports: Reports,
        *,
        make_room: Callable[[Journal], None],
        cache: PayloadCache,
    ) -> None:
        self._runner = runner
        self._take_changes = take_changes
        self._release = release
        self._reports = reports
        self._make_room = make_room
        self._cache = cache
        self._effects: list[Effect] = []
        self._looks: list[_Question] = []
        self._stepped = False
        self._is_urgent = False
        self._in_flight: _Batch | None = None
        self.is_stuck = False
        """The batch in flight does not fit on the disk; it waits for `retry`."""
        self.has_failed = False
        self.deleted: Callable[[Sequence[int]], object] = lambda numbers: None
        """Called with the numbers of jobs whose rows are gone, when that is stored."""

    @property
    def is_open(self) -> bool:
        """Something gathers that is not handed over yet."""
        return self._stepped or bool(self._looks)

    @property
    def is_patient(self) -> bool:
        """Something gathers, and nobody is held up if it goes on gathering for a moment."""
        return self._stepped and not (self._is_urgent or self._looks or self._in_flight)

    @property
    def is_idle(self) -> bool:
        """Nothing is held back and nothing is in flight."""
        return self._in_flight is None and not self.is_open

    def add(self, effects: Sequence[Effect]) -> None:
        """Hold the effects of a step of the core, which may have changed something even if there are none."""
        self._stepped = True
        self._effects += effects
        self._is_urgent = self._is_urgent or not (effects and all(map(_is_patient, effects)))

    def look(self, look: Look, done: Callable[[Any], None], *, may_pass: bool = False) -> None:
        """Read from the journal behind everything decided so far; `done` gets what was read.

        `may_pass` is for what goes straight to a person: while a batch does not fit on the disk it reads
        what is there, because waiting would be for ever. What the core shall act on must never pass: it
        would be older than the core's own memory.
        """
        if may_pass and self.is_stuck:
            self._runner.submit(look, lambda result, error: self._answered(done, result, error))
        else:
            self._looks.append((look, done))

    def flush(self) -> None:
        """Hand the open batch over, unless one is in flight: then it goes on gathering."""
        if self._in_flight is not None or self.has_failed or not self.is_open:
            return
        changes = self._take_changes() if self._stepped else Changes()
        effects, looks = self._effects, self._looks
        self._effects, self._looks, self._stepped, self._is_urgent = [], [], False, False
        self._cache.note(changes)
        payloads, missing = self._cache.take(_pushed_jobs(effects))
        if changes or missing or looks:
            self._hand_over(_Batch(effects, changes, payloads, missing, looks))
        else:
            self._release(effects, payloads)

    def pushes_held(self) -> list[Message]:
        """What is pushed as soon as the batch in flight is stored, or one behind it."""
        in_flight = self._in_flight.effects if self._in_flight is not None else []
        return [effect.message for effect in (*in_flight, *self._effects) if type(effect) is Push]

    def retry(self) -> None:
        """Try the batch that did not fit once more."""
        if self.is_stuck and self._in_flight is not None:
            self.is_stuck = False
            self._hand_over(self._in_flight)

    def _hand_over(self, batch: _Batch) -> None:
        self._in_flight = batch
        self._reports.commit_begun()

        def store_and_look(journal: Journal) -> tuple[dict[int, bytes], list[Any]]:
            try:
                batch.store(journal)
            except JournalFullError:
                self._make_room(journal)
                batch.store(journal)
            return batch.look(journal)

        self._runner.submit(
            store_and_look,
            lambda result, error: self._came_back(batch, result, error),
            is_small=batch.is_small,
        )

    def _came_back(self, batch: _Batch, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._stored(batch, *result)
        elif isinstance(error, JournalFullError):
            self.is_stuck = True
            self._reports.commit_full()
        else:
            self._fail(error)

    def _stored(self, batch: _Batch, loaded: dict[int, bytes], found: list[Any]) -> None:
        self._reports.commit_stored()
        self._in_flight = None
        if batch.changes.deleted:
            self.deleted([number for number, _, _, _ in batch.changes.deleted])
        self._release(batch.effects, batch.payloads | loaded)
        for (_, done), result in zip(batch.looks, found, strict=True):
            done(result)
        self.flush()

    def _answered(self, done: Callable[[Any], None], result: Any, error: BaseException | None) -> None:
        if error is None:
            done(result)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.has_failed = True
        self._reports.commit_failed(error)


def _pushed_jobs(effects: Sequence[Effect]) -> list[int]:
    """Numbers of the jobs that effects hand out."""
    pushes = (effect.message for effect in effects if type(effect) is Push)
    return [message.number for message in pushes if isinstance(message, work.Job)]


def _is_patient(effect: Effect) -> bool:
    return type(effect) is Answer and effect.patient
