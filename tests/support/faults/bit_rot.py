"""Bits that change by themselves: in the database or its log, which are then opened and read whole.

Whatever changes a value that is stored must be found, at the start or when it is first read: a wrong
answer is worse than none. Of the log at most the last commit may go unnoticed, because a power cut could
have left the same; or the last two, when what was lost is the very mark between them. A log that has lost
its tail is just an older one, which nothing can tell. The files are those of a broker that was killed, or
ended, in the middle of its work.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs

from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.refusals import JournalCorruptError, StartRefusedError
from stoker.broker.sqlite.log import FRAME_HEADER_BYTES, HEADER_BYTES

from ..proof.harness import Harness, Tally
from .power_cut import SECTOR_BYTES, Files
from .recording import NAME, WAL_BYTES_CHECKPOINT, memory_directory, put
from .scenario import RETENTION, Scenario
from .witness import Content, ExaminedJournal, Witness, WitnessedJournal, differences

ACTS = 60
FLIPS_PER_SAMPLE = 100
PAGE_BYTES = 4096
LOG = f"{NAME}-wal"

QUEUES = ("mail", "reports", "default")


@attrs.frozen
class Sample:
    """The files of one broker, and what they hold."""

    files: Files
    states: Sequence[Content]
    """What they held after each commit, the last one included."""
    view: dict[str, Any]

    @property
    def newest(self) -> list[Content]:
        """The last three states that differ, the newest first. Some commits change nothing."""
        newest: list[Content] = []
        for state in reversed(self.states):
            if len(newest) < 3 and state not in newest:
                newest.append(state)
        return newest


def sample(seed: int) -> Sample:
    """A broker works for a while; then it is killed, or ends."""
    chance = Random(seed)
    with memory_directory() as directory:
        witness = Witness(lambda: 0)
        scenario = Scenario(chance, lambda: 0)
        for is_last in (False, True):
            journal = WitnessedJournal(
                str(directory / NAME), witness, wal_bytes_checkpoint=WAL_BYTES_CHECKPOINT
            )
            scenario.begin(journal)
            for _ in range(ACTS):
                scenario.act()
            scenario.station.settle()
            scenario.end()
            if is_last and chance.random() < 0.5:
                journal.kill()
            else:
                journal.close()
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        return Sample(files, witness.states, view_of(directory))


def view_of(directory: Path) -> dict[str, Any]:
    """What a broker sees that starts on these files and reads everything there is, by its own look-ups."""
    journal = ExaminedJournal(str(directory / NAME))
    try:
        recovered = journal.load(boot_id="boot-after", boot_ms=1000, wall_ms=1_800_000_000_000)
        content = journal.content()
        ids = [*(job[1] for job in content["jobs"].values()), *content["ids"]]
        return {
            "content": content,
            "recovered": [repr(each) for each in attrs.astuple(recovered, recurse=False)],
            "found": {id: repr(journal.find(id, history=True, payload=True)) for id in ids},
            "dead": {queue: journal.dead_ids(queue, 100) for queue in QUEUES},
            "prunable": journal.prunable(RETENTION, boot_ms=1000, limit=100),
        }
    finally:
        journal.kill()


def damage(files: Files, name: str, chance: Random) -> tuple[bytes, str, int]:
    """The content of one file with something wrong in it: what, and where."""
    data = bytearray(files[name])
    kind = chance.choices(("flip", "zeros", "tail", "swap"), (14, 2, 2, 2))[0]
    offset = chance.randrange(len(data))
    if kind == "flip":
        data[offset] ^= 1 << chance.randrange(8)
    elif kind == "zeros":
        offset -= offset % SECTOR_BYTES
        data[offset : offset + SECTOR_BYTES] = bytes(len(data[offset : offset + SECTOR_BYTES]))
    elif kind == "tail":
        del data[offset:]
    else:
        start, size = (HEADER_BYTES, FRAME_HEADER_BYTES + PAGE_BYTES) if name == LOG else (0, PAGE_BYTES)
        offset, other = (start + chance.randrange((len(data) - start) // size) * size for _ in range(2))
        page = data[offset : offset + size]
        data[offset : offset + size] = data[other : other + size]
        data[other : other + size] = page
    return bytes(data), kind, offset


def verdict(directory: Path, sample: Sample, name: str, kind: str) -> tuple[str, str]:
    """(`found`, `harmless`, `last commit`, `shorter log` or `unnoticed`; in what way) of damaged files."""
    try:
        view = view_of(directory)
    except (StartRefusedError, JournalCorruptError):
        return "found", ""
    except (JournalBrokenError, JournalFullError, KeyError) as error:
        return "unnoticed", f"called {error!r}"
    if view == sample.view:
        return "harmless", ""
    content = view["content"]
    if name == LOG and content in sample.newest[: 2 if kind == "flip" else 3]:
        return "last commit", ""
    if name == LOG and kind == "tail" and content in sample.states:
        return "shorter log", ""
    changed = [part for part in view if view[part] != sample.view[part]]
    return "unnoticed", f"{changed}: {differences(content, sample.states[-1])}"


def run(seed: int, amount: int) -> Tally:
    """So many damaged journals."""
    chance = Random(seed)
    counts: Counter[str] = Counter()
    found: list[str] = []
    with memory_directory() as directory:
        while counts["flips"] < amount:
            sample_seed = chance.randrange(2**32)
            whole = sample(sample_seed)
            for _ in range(min(FLIPS_PER_SAMPLE, amount - counts["flips"])):
                name = chance.choice([name for name, content in whole.files.items() if content])
                data, kind, offset = damage(whole.files, name, chance)
                put(directory, {**whole.files, name: data})
                result, how = verdict(directory, whole, name, kind)
                counts["flips"] += 1
                counts[result] += 1
                if result == "unnoticed":
                    what = f"{kind} at {offset} of {name}"
                    found.append(f"piece {seed}, sample {sample_seed}, {what}: {how}")
    return Tally(counts, found)


HARNESS = Harness(
    name="bit_rot",
    title="a flipped bit, a lost sector, a lost tail, exchanged pages, in database and log",
    unit="flips",
    goal=5_000,
    piece=2_500,
    run=run,
)
