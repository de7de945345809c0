"""Power cuts at any moment: what the disk may hold then is built, opened, and held to what was promised.

A recorded run of the real core, committer and journal is cut at random operations of its disk. Of each
cut one legal outcome is made (`power_cut.py`) and opened by stoker's own journal. At `synchronous=FULL`
it must hold everything that had been answered, and be in exactly one of the states that the run made; at
NORMAL it must be in a state that is no older than the last checkpoint. Of some images the broker also
goes on until everything is done, and the oracle judges the whole.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import attrs

from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.refusals import StartRefusedError
from stoker.broker.sqlite.journal import Synchronous

from ..oracle import violations
from ..proof.harness import Harness, Tally
from .power_cut import Files, Platter
from .promises import Promises
from .recording import NAME, Recording, memory_directory, put, record
from .scenario import Scenario
from .tape import Synced
from .witness import ExaminedJournal, Mark, differences

IMAGES_PER_RUN = 500

FLOOD_SHARE = 10
"""One cut of so many comes soon after a batch of many rows: they are few, and the next one's sync, which
would make good what is missing, is not far."""

FLOOD_OPERATIONS = 30

GO_ON_EVERY = 25
"""Of so many images one is gone on with to the end."""

TO_THE_END = 2**62

WALL_MS = 1_800_000_000_000

Record = Callable[[int], Recording]
Cuts = Callable[[Recording, int, Random], "Iterator[Image]"]


@attrs.frozen
class Image:
    """One outcome of one cut, with what counted at that moment."""

    position: int
    files: Files
    mark: Mark
    promises: Promises
    records: int
    """How many records of the history had been made."""


def images(
    recording: Recording, count: int, chance: Random, since: int = 0, until: int = TO_THE_END
) -> Iterator[Image]:
    """So many cuts between two positions of the tape, in its order.

    `promises` is one object, which says of each image what had been promised at its moment.
    """
    platter, promises, marks, records = Platter(), Promises(), 0, 0
    moments = [moment for moment in _moments(recording) if since <= moment <= until]
    cut_at = sorted(chance.choices(moments, k=count))
    position = 0
    for cut in cut_at:
        for operation in recording.operations[position:cut]:
            platter.take(operation)
        position = cut
        while marks + 1 < len(recording.marks) and recording.marks[marks + 1].position <= cut:
            marks += 1
        while records < len(recording.records) and recording.places[records] <= cut:
            promises.take(recording.records[records])
            records += 1
        yield Image(cut, platter.image(chance), recording.marks[marks], promises, records)


def after_floods(recording: Recording, count: int, chance: Random) -> Iterator[Image]:
    """So many cuts, all of them soon after a batch of many rows."""
    for place, flood in enumerate(recording.floods):
        share = (count + place) // len(recording.floods)
        yield from images(recording, share, chance, flood, flood + FLOOD_OPERATIONS)


def anywhere(recording: Recording, count: int, chance: Random) -> Iterator[Image]:
    """So many cuts, some of them soon after a batch of many rows."""
    soon = count // FLOOD_SHARE
    yield from after_floods(recording, soon, chance)
    yield from images(recording, count - soon, chance)


def _moments(recording: Recording) -> list[int]:
    """Positions at which cuts differ: where something is not synced yet, and once after each sync."""
    platter = Platter()
    moments: list[int] = []
    for position, operation in enumerate(recording.operations, 1):
        platter.take(operation)
        if isinstance(operation, Synced) or not platter.is_settled:
            moments.append(position)
    return moments


def judge(directory: Path, image: Image, recording: Recording, synchronous: Synchronous) -> list[str]:
    """What is wrong with an image, in words."""
    put(directory, image.files)
    journal = ExaminedJournal(str(directory / NAME), synchronous=synchronous)
    try:
        recovered = journal.load(boot_id="boot-after", boot_ms=1000, wall_ms=WALL_MS)
        content, faults = journal.content(), journal.faults()
    except (StartRefusedError, JournalBrokenError, JournalFullError) as error:
        return [f"the journal is refused: {error!r}"]
    finally:
        journal.kill()
    candidates = recording.states[image.mark.first : image.mark.last + 1]
    if content not in candidates:
        faults.append(f"no state that was made: {differences(content, candidates[-1])}")
    if recovered.epoch <= image.mark.epoch:
        faults.append(f"epoch {recovered.epoch} is given again, after {image.mark.epoch}")
    if synchronous == "FULL":
        faults += image.promises.broken_by(content)
    return faults


def go_on(directory: Path, image: Image, recording: Recording) -> list[str]:
    """Start a broker on an image, finish everything, and ask the oracle about it all."""
    put(directory, image.files)
    scenario = Scenario(Random(image.position), lambda: 0)
    scenario.take_over(recording.records[: image.records])
    journal = ExaminedJournal(str(directory / NAME))
    try:
        scenario.begin(journal)
        scenario.finish()
    finally:
        journal.kill()
    return violations(scenario.history.records)


def run(
    seed: int,
    amount: int,
    make: Record = record,
    synchronous: Synchronous = "FULL",
    cuts: Cuts = anywhere,
    images_per_run: int = IMAGES_PER_RUN,
) -> Tally:
    """So many images. `make` is replaced by broken builds, and by one that is not as durable."""
    chance = Random(seed)
    found: list[str] = []
    counts = {"images": 0, "finished": 0, "runs": 0}
    with memory_directory() as directory:
        while counts["images"] < amount:
            run_seed = chance.randrange(2**32)
            recording = make(run_seed)
            counts["runs"] += 1
            found += [f"piece {seed}, run {run_seed}: {fault}" for fault in recording.faults]
            for image in cuts(recording, min(images_per_run, amount - counts["images"]), chance):
                faults = judge(directory, image, recording, synchronous)
                if counts["images"] % GO_ON_EVERY == 0 and synchronous == "FULL" and not faults:
                    faults = go_on(directory, image, recording)
                    counts["finished"] += 1
                where = f"piece {seed}, run {run_seed}, cut after operation {image.position}"
                found += [f"{where}: {fault}" for fault in faults]
                counts["images"] += 1
    return Tally(counts, found)


HARNESS = Harness(
    name="power_images",
    title="power cut at any moment, any subset of unsynced sectors lost",
    unit="images",
    goal=200_000,
    piece=10_000,
    run=run,
)
