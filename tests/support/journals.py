"""Jobs and rows for journals, and one bench for both kinds of journal.

A bench owns the journal under test and knows how to start anew on what it stored: `reopen` after a
clean end, `crash` as after SIGKILL.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import apsw

from stoker.broker.core.effects import OUTCOME_COLUMNS, Changes, OutcomeRow
from stoker.broker.core.job import Image, Job, image
from stoker.broker.journal import Journal, Recovered, Retention
from stoker.broker.memory import MemoryJournal
from stoker.broker.sqlite import SqliteJournal
from stoker.proto.model import State

BOOT_ID = "boot-1"
BOOT_MS = 1_000_000
WALL_MS = 1_700_000_000_000

KEEP_ALL = Retention(done_kept_ms=10**9, done_kept_max=10**6, dead_kept_ms=10**9, dead_kept_max=10**6)


def a_job(number: int, **fields: Any) -> Job:
    """A ready job of epoch 1, with the given fields instead."""
    given: dict[str, Any] = {
        "id": f"job-{number}",
        "body_hash": bytes([number % 256]) * 16,
        "id_by_caller": True,
        "kind": "send",
        "queue": "mail",
        "priority": 0,
        "position": number,
        "state": State.READY,
        "resolved": True,
        "payload_bytes": 3,
        "headers": None,
        "created_at_ms": WALL_MS,
        "epoch": 1,
        "created_boot_ms": BOOT_MS,
    }
    return Job(number=number, **{**given, **fields})


def an_image(number: int, **fields: Any) -> Image:
    return image(a_job(number, **fields))


def a_finished_image(number: int, state: State, finished_boot_ms: int, **fields: Any) -> Image:
    return an_image(number, state=state, finished_boot_ms=finished_boot_ms, **fields)


def an_outcome(number: int, attempt: int, outcome: str = "error", **fields: Any) -> OutcomeRow:
    """The row of an attempt that ended."""
    values: dict[str, Any] = dict.fromkeys(OUTCOME_COLUMNS, 0)
    values.update(
        number=number,
        attempt=attempt,
        outcome=outcome,
        reason="because",
        report="",
        token_epoch=1,
        token_counter=attempt,
        worker="boot/1/2/3/nonce",
        signal=None,
        status=None,
        result=None,
        output=None,
    )
    values.update(fields)
    return tuple(values[name] for name in OUTCOME_COLUMNS)


def stored(*images: Image) -> Changes:
    """The changes that put jobs, each with a payload that names it."""
    return Changes(images=images, payloads=[(each[0], f"payload {each[0]}".encode()) for each in images])


def sql(path: str | Path, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements on a closed journal, behind its back; the rows of the last one."""
    connection: Any = apsw.Connection(str(path))
    try:
        answers: list[list[tuple[Any, ...]]] = [connection.execute(each).fetchall() for each in statements]
        return answers[-1]
    finally:
        connection.close()


class Bench(Protocol):
    """A journal, and what comes after it."""

    @property
    def journal(self) -> Journal: ...

    def load(self, **clocks: Any) -> Recovered:
        """Start on the journal as it is."""
        ...

    def reopen(self, **clocks: Any) -> Recovered:
        """End cleanly and start anew."""
        ...

    def crash(self, **clocks: Any) -> Recovered:
        """Start anew on what was committed, as after SIGKILL."""
        ...


def load(
    journal: Journal, *, boot_id: str = BOOT_ID, boot_ms: int = BOOT_MS, wall_ms: int = WALL_MS
) -> Recovered:
    """Start on a journal, by default within the same boot."""
    return journal.load(boot_id=boot_id, boot_ms=boot_ms, wall_ms=wall_ms)


class MemoryBench:
    def __init__(self) -> None:
        self.journal = MemoryJournal()

    def load(self, **clocks: Any) -> Recovered:
        return load(self.journal, **clocks)

    def reopen(self, **clocks: Any) -> Recovered:
        self.journal.close()
        return self.crash(**clocks)

    def crash(self, **clocks: Any) -> Recovered:
        self.journal = self.journal.crash()
        return self.load(**clocks)


class SqliteBench:
    def __init__(self, directory: Path, **settings: Any) -> None:
        self._settings = settings
        self._directory = directory
        self._starts = 0
        self.path = str(directory / "journal.db")
        self.journal = SqliteJournal(self.path, **settings)

    def load(self, **clocks: Any) -> Recovered:
        return load(self.journal, **clocks)

    def reopen(self, **clocks: Any) -> Recovered:
        self.journal.close()
        self.journal = SqliteJournal(self.path, **self._settings)
        return self.load(**clocks)

    def crash(self, **clocks: Any) -> Recovered:
        """On a copy of the files, taken while the journal was open."""
        old, self._starts = self.journal, self._starts + 1
        after = self._directory / f"after-{self._starts}"
        after.mkdir()
        for path in Path(self.path).parent.glob("journal.db*"):
            shutil.copy(path, after)
        self.path = str(after / "journal.db")
        self.journal = SqliteJournal(self.path, **self._settings)
        recovered = self.load(**clocks)
        old.close()
        return recovered


BENCHES: dict[str, Callable[[Path], Bench]] = {
    "memory": lambda directory: MemoryBench(),
    "sqlite": lambda directory: SqliteBench(directory),
}
