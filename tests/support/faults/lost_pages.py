"""A sync fails, and the kernel forgets what it was to write: it can be read still, and is on no disk.

The broker ends of the failed sync, as it must. What the next one reads includes pages that only memory
holds, and it answers for more on top of them; then the power is cut. Nothing that was answered may be
gone, whichever sync it was that failed: of a commit, of a checkpoint, or of a start.
"""

from collections import Counter
from itertools import chain
from pathlib import Path
from random import Random

from stoker.broker.journal import JournalBrokenError

from ..proof.harness import Harness, Tally
from .power_images import images, judge
from .recording import NAME, Recording, memory_directory
from .scenario import Scenario
from .tape import taped
from .witness import Witness, WitnessedJournal

LIVES = 4
ACTS_PER_LIFE = 25
CUTS_PER_SEED = 4

START_OPERATIONS = 60
"""About as many as a start needs to fold in a log."""

SYNCS_MAX = 40
"""The failing sync is one of so many: in all lives together there are some more."""

WAL_BYTES_CHECKPOINT = 100_000


def record(seed: int) -> tuple[Recording, int]:
    """A run in which one sync fails, and the position on its tape at which that was."""
    chance = Random(seed)
    with memory_directory() as directory, taped() as tape:

        def position() -> int:
            return len(tape.operations)

        witness = Witness(position)
        scenario = Scenario(chance, position)
        tape.fail_sync(chance.randint(1, SYNCS_MAX))
        for _ in range(LIVES):
            _live(
                scenario,
                WitnessedJournal(
                    str(directory / NAME), witness, vfs=tape.name, wal_bytes_checkpoint=WAL_BYTES_CHECKPOINT
                ),
            )
        history = scenario.history
        recording = Recording(
            tape.operations,
            witness.marks,
            witness.states,
            history.records,
            history.places,
            [],
            witness.faults,
        )
        return recording, tape.failed_at


def _live(scenario: Scenario, journal: WitnessedJournal) -> None:
    """One life, until a sync fails or it is killed."""
    try:
        scenario.begin(journal)
        for _ in range(ACTS_PER_LIFE):
            scenario.act()
            if scenario.station.failure is not None:
                break
        scenario.end()
    except JournalBrokenError:
        # It did not come to life.
        pass
    finally:
        journal.kill()


def run(seed: int, amount: int, cuts: int = CUTS_PER_SEED) -> Tally:
    """So many runs, of each so many power cuts behind the failed sync."""
    chance = Random(seed)
    counts: Counter[str] = Counter()
    found: list[str] = []
    with memory_directory() as directory:
        for _ in range(amount):
            run_seed = chance.randrange(2**32)
            recording, failed_at = record(run_seed)
            counts["seeds"] += 1
            counts["failed syncs"] += failed_at > 0
            counts["images"] += cuts
            faults = recording.faults + _cut(directory, recording, failed_at, chance, cuts)
            found += [
                f"piece {seed}, run {run_seed}, failed after operation {failed_at}: {fault}"
                for fault in faults
            ]
    return Tally(counts, found)


def _cut(directory: Path, recording: Recording, failed_at: int, chance: Random, cuts: int) -> list[str]:
    """Half of the cuts come while the next start is at work, which is where most can go wrong."""
    found: list[str] = []
    soon = images(recording, cuts // 2, chance, failed_at, failed_at + START_OPERATIONS)
    later = images(recording, cuts // 2, chance, failed_at)
    for image in chain(soon, later):
        faults = judge(directory, image, recording, "FULL")
        found += [f"cut after operation {image.position}: {fault}" for fault in faults]
    return found


HARNESS = Harness(
    name="lost_pages",
    title="a failed sync drops its pages; restart, more answers, power cut",
    unit="seeds",
    goal=2_000,
    piece=500,
    run=run,
)
