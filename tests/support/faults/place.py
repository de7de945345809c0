"""A directory with a broker of its own, and what is in its journal when nobody has it open."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from support.listening import listens
from support.paths import TESTS, python_path
from support.waiting import wait_until

from stoker.broker import clock
from stoker.broker.core.job import COLUMNS
from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.refusals import StartRefusedError
from stoker.proto import limits

from .. import history as h
from .recording import NAME
from .spawner import STOKER, Spawned, Spawner
from .witness import Content, ExaminedJournal

ENVIRON = {"PYTHONPATH": python_path(TESTS)}
"""With it a broken broker can be imported."""

START_S = 30.0
"""Longer than any start and any end takes."""

Command = Sequence[str]


def program(call: str = STOKER) -> Command:
    """The command line that runs `module:function` in a fresh interpreter."""
    script = f"from {call.replace(':', ' import ')} as call; call()"
    return [sys.executable, "-c", script]


class Place:
    """A directory with a broker of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = str(directory / "broker.sock")
        self.data = directory / "data"
        self.log = directory / "broker.log"

    @property
    def arguments(self) -> Sequence[str]:
        return ["broker", "--socket", self.socket, "--data", str(self.data)]

    def start(self, spawner: Spawner, call: str = STOKER, *options: str) -> Spawned:
        """A broker without a gate, listening."""
        broker = spawner.spawn(call, *self.arguments, *options, log=self.log)
        wait_until(lambda: self.is_up() or broker.has_ended(), "the broker listens", deadline_s=START_S)
        return broker

    def is_up(self) -> bool:
        """Whether somebody listens: a socket whose broker was killed is still there."""
        return listens(self.socket)

    @property
    def has_journal(self) -> bool:
        """Killed at its first start, a broker may not have come so far."""
        return (self.data / NAME).exists()

    def content(self, scratch: Path) -> Content:
        """What the journal holds, read from a copy, as the next start would find it."""
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        for path in self.data.glob(f"{NAME}*"):
            if path.suffix != ".new" and ".new-" not in path.name:
                shutil.copy2(path, scratch / path.name)
        return read(scratch / NAME)


def read(path: Path) -> Content:
    """A journal's content; a ValueError says what is wrong with it."""
    journal = ExaminedJournal(str(path))
    now = clock.now()
    try:
        journal.load(boot_id=clock.boot_id(), boot_ms=now.boot_ms, wall_ms=now.wall_ms)
        content, faults = journal.content(), journal.faults()
    except (StartRefusedError, JournalBrokenError, JournalFullError) as error:
        raise ValueError(f"the journal is refused: {error}") from error
    finally:
        journal.kill()
    if faults:
        raise ValueError(f"the journal is damaged: {faults}")
    return content


def row_of(image: tuple[object, ...]) -> h.Row:
    """A job at the end, for the oracle."""
    job = dict(zip(COLUMNS, image, strict=True))
    return h.Row(
        str(job["id"]),
        int(str(job["number"])),
        str(job["queue"]),
        str(job["state"]),
        int(str(job["charged"])),
        int(str(job["crashes"])),
        limits.ATTEMPTS_MAX_DEFAULT,
        limits.CRASHES_MAX_DEFAULT,
    )
