"""A state directory whose file system turns read-only, shuts down, or is unmounted under a broker at full rate.

The broker ends, soon and with an exit code of its own, and its log names the path. When the file system is
mounted again, the journal holds everything that was told; of one that was shut down or lost its journal,
everything that was told before (see `file_system_cuts.py` for why).
"""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from support.waiting import wait_until

from stoker.config.exits import Exit

from ..proof.harness import Harness, Tally
from .account import Account
from .file_system_cuts import Rush
from .loop_disk import LoopDisk, hindrance, kinds
from .place import START_S, Place, program
from .recording import memory_directory
from .speaker import LostError

WAYS: dict[str, Callable[[LoopDisk], None]] = {
    "shut down": LoopDisk.cut,
    "unmounted": LoopDisk.take_away,
    "made read-only": LoopDisk.make_read_only,
}
SECONDS_OF_LIFE = (0.05, 0.3)

END_S = {"shut down": 1.0, "unmounted": 2.5, "made read-only": 1.0}
"""From the fault to the end. That a name is gone is looked for once a second."""


def lose_one(way: str, kind: str, chance: Random) -> list[str]:
    """One place lost; what was wrong."""
    account = Account()
    with memory_directory() as directory, LoopDisk(directory, kind) as disk:
        place = Place(directory)
        place.data = disk.mount / "data"
        with place.log.open("ab") as log:
            broker = subprocess.Popen(
                [*program(), *place.arguments], stdin=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        rush = Rush(place.socket, account)
        try:
            wait_until(place.is_up, "the broker listens", deadline_s=START_S)
            rush.begin()
            found = _lose(way, disk, account, rush, broker, chance.uniform(*SECONDS_OF_LIFE))
        finally:
            broker.kill()
            broker.wait()
        if str(place.data) not in place.log.read_text():
            found.append("the log does not name the path")
        rush.lose()
        disk.come_back()
        try:
            found += account.broken_by(place.content(directory / "copy"))
        except ValueError as error:
            found.append(str(error))
    return found


def _lose_place(way: str, disk: LoopDisk, account: Account) -> None:
    account.is_over = way != "unmounted"
    WAYS[way](disk)


def _lose(
    way: str, disk: LoopDisk, account: Account, rush: Rush, broker: "subprocess.Popen[bytes]", after_s: float
) -> list[str]:
    lost = threading.Timer(after_s, _lose_place, [way, disk, account])
    lost_at_s = time.monotonic() + after_s
    lost.start()
    try:
        rush.rush(lost_at_s + 2 * END_S[way])
    except LostError:
        took_s = time.monotonic() - lost_at_s
    else:
        return [f"the broker has gone on for {2 * END_S[way]} s"]
    finally:
        lost.join()
    code = broker.wait(START_S)
    found = [f"the exit code is {code}"] if code != Exit.STORAGE else []
    return [*found, f"it took {took_s:.2f} s to end"] if took_s > END_S[way] else found


def run(seed: int, amount: int) -> Tally:
    """So many places, lost in each way and on each kind of file system in turns."""
    chance, systems = Random(seed), kinds()
    counts: Counter[str] = Counter({"losses": 0})
    found: list[str] = []
    for number in range(amount):
        way, kind = list(WAYS)[number % len(WAYS)], systems[number // len(WAYS) % len(systems)]
        place_seed = chance.randrange(2**32)
        if way == "made read-only":
            # Only of ext4 can a person ask for what the kernel does after an error.
            kind = "ext4"
        faults = lose_one(way, kind, Random(place_seed))
        counts["losses"] += 1
        counts[way] += 1
        found += [f"piece {seed}, place {place_seed} ({kind}) {way}: {fault}" for fault in faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="lost_places",
    title="file system shut down, unmounted, turned read-only under a broker at full rate",
    unit="losses",
    goal=60,
    piece=20,
    run=run,
    needs=hindrance,
)
