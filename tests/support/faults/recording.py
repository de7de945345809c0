"""A run on tape: several lives of a broker, between which it ends in every way a broker can end.

It ends cleanly, is killed, or the host loses power and what is left of the files is what the next life
finds. `record` gives everything that is needed to cut the power again at any other moment.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import attrs

from stoker.broker.sqlite.journal import Synchronous

from .. import history as h
from ..committers import MakeCommitter, make_committer
from .power_cut import Files, Platter
from .scenario import Scenario
from .tape import Operation, Replaced, taped
from .witness import Content, Mark, Witness, WitnessedJournal

NAME = "journal.db"

WAL_BYTES_CHECKPOINT = 60_000
"""Small, so that checkpoints are frequent."""

WAL_BYTES_OF_FLOODS = 100_000
"""Still small, but a batch of many rows is not folded in, with syncs, by its own commit."""

LIVES = 4
ACTS_PER_LIFE = 50
_FLOODS = {15: Scenario.flood, 35: Scenario.ebb}
"""In front of which acts of one of the lives."""


@attrs.frozen
class Recording:
    """What a run did to its disk, and what it had promised at which position of it."""

    operations: list[Operation]
    marks: list[Mark]
    states: list[Content]
    records: list[h.Record]
    places: list[int]
    floods: list[int]
    """Positions at which a batch of more than a hundred rows had been stored and answered."""
    faults: list[str]
    """What was already wrong during the run: a start found what it must not find."""


@contextmanager
def memory_directory() -> Generator[Path]:
    """A directory for files that need not last, in memory where the host has such a file system."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="stk-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def put(directory: Path, files: Files) -> None:
    """Make these the only files there."""
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(content)


def record(
    seed: int,
    *,
    synchronous: Synchronous = "FULL",
    swallows_syncs: bool = False,
    committer: MakeCommitter = make_committer,
    kind_of_journal: type[WitnessedJournal] = WitnessedJournal,
) -> Recording:
    """Run it all. `swallows_syncs`, another `committer` and journal are for broken builds."""
    chance = Random(seed)
    with memory_directory() as directory, taped(swallows_syncs=swallows_syncs) as tape:

        def position() -> int:
            return len(tape.operations)

        witness = Witness(position, is_durable=synchronous == "FULL")
        scenario = Scenario(chance, position, committer)
        platter, read = Platter(), 0
        floods = list[int]()
        flooded_life = chance.randrange(LIVES)
        for life in range(LIVES):
            journal = kind_of_journal(
                str(directory / NAME),
                witness,
                vfs=tape.name,
                synchronous=synchronous,
                wal_bytes_checkpoint=WAL_BYTES_OF_FLOODS,
            )
            scenario.begin(journal)
            for place in range(ACTS_PER_LIFE):
                if life == flooded_life and place in _FLOODS:
                    _FLOODS[place](scenario)
                    floods.append(position())
                scenario.act()
            scenario.end()
            if life % LIVES == LIVES - 1 or chance.random() < 0.3:
                journal.close()
            else:
                journal.kill()
            if not swallows_syncs and chance.random() < 0.5:
                for operation in tape.operations[read:]:
                    platter.take(operation)
                files = platter.image(chance)
                put(directory, files)
                tape.operations.append(Replaced(files))
                scenario.clock.reboot()
                read = len(tape.operations) - 1
            elif chance.random() < 0.3:
                scenario.leap()
        return Recording(
            tape.operations,
            witness.marks,
            witness.states,
            scenario.history.records,
            scenario.history.places,
            floods,
            witness.faults,
        )
