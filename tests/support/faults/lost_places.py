"""A state directory that is lost under a broker at full rate: its file system, its journal, or the log of that.

The file system turns read-only, shuts down, or is unmounted; a file is moved away, or a copy put in its place.
The broker ends, soon and with an exit code of its own, and its log names the path. Without the files that
it wrote to there is no other start. When they are back, or the file system is mounted again, the journal
holds everything that was told; of one that was shut down or lost its journal, everything that was told
before (see `file_system_cuts.py` for why).
"""

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from support.waiting import wait_until

from stoker.config.exits import Exit

from ..proof.harness import Harness, Tally
from .account import Account
from .file_system_cuts import Rush
from .loop_disk import LoopDisk, hindrance, kinds
from .place import ENVIRON, START_S, Place, program
from .recording import NAME, memory_directory
from .spawner import STOKER
from .speaker import LostError


class LostFile:
    """A file that is moved away, and has to come back."""

    def __init__(self, name: str, *, leaves_copy: bool) -> None:
        self._name = name
        self._leaves_copy = leaves_copy

    def lose(self, disk: LoopDisk) -> None:
        path, away = self._paths(disk)
        if self._leaves_copy:
            shutil.copy2(path, f"{away}.copy")
        path.rename(away)
        if self._leaves_copy:
            os.rename(f"{away}.copy", path)

    def come_back(self, disk: LoopDisk) -> None:
        path, away = self._paths(disk)
        away.rename(path)

    def _paths(self, disk: LoopDisk) -> tuple[Path, Path]:
        data = disk.mount / "data"
        return data / self._name, data / f"away-{self._name}"


FILES = {
    "journal moved": LostFile(NAME, leaves_copy=False),
    "journal replaced": LostFile(NAME, leaves_copy=True),
    "log moved": LostFile(f"{NAME}-wal", leaves_copy=False),
    "log replaced": LostFile(f"{NAME}-wal", leaves_copy=True),
}

WAYS: dict[str, Callable[[LoopDisk], None]] = {
    "shut down": LoopDisk.cut,
    "unmounted": LoopDisk.take_away,
    "made read-only": LoopDisk.make_read_only,
    **{way: file.lose for way, file in FILES.items()},
}
KEPT = {"unmounted", *FILES}
"""What the broker writes to goes on living, so what is told after the loss counts as well."""

SECONDS_OF_LIFE = (0.05, 0.3)

END_S = 1.0
"""From the fault to the end. A broker at full rate looks ten times a second where its files are."""


def lose_one(way: str, kind: str, chance: Random, call: str = STOKER) -> list[str]:
    """One place lost; what was wrong."""
    account = Account()
    with memory_directory() as directory, LoopDisk(directory, kind) as disk:
        place = Place(directory)
        place.data = disk.mount / "data"
        broker = _start(place, call)
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
        if way in FILES:
            found += _start_without(place)
            FILES[way].come_back(disk)
        else:
            disk.come_back()
        try:
            found += account.broken_by(place.content(directory / "copy"))
        except ValueError as error:
            found.append(str(error))
    return found


def _start(place: Place, call: str) -> "subprocess.Popen[bytes]":
    with place.log.open("ab") as log:
        return subprocess.Popen(
            [*program(call), *place.arguments],
            env=os.environ | ENVIRON,
            stdin=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )


def _lose_place(way: str, disk: LoopDisk, account: Account) -> None:
    account.is_over = way not in KEPT
    WAYS[way](disk)


def _lose(
    way: str, disk: LoopDisk, account: Account, rush: Rush, broker: "subprocess.Popen[bytes]", after_s: float
) -> list[str]:
    lost = threading.Timer(after_s, _lose_place, [way, disk, account])
    lost_at_s = time.monotonic() + after_s
    lost.start()
    try:
        rush.rush(lost_at_s + 2 * END_S)
    except LostError:
        took_s = time.monotonic() - lost_at_s
    else:
        return [f"the broker has gone on for {2 * END_S} s"]
    finally:
        lost.join()
    code = broker.wait(START_S)
    found = [f"the exit code is {code}"] if code != Exit.STORAGE else []
    return [*found, f"it took {took_s:.2f} s to end"] if took_s > END_S else found


def _start_without(place: Place) -> list[str]:
    """A start on what is left must be refused."""
    broker = _start(place, STOKER)
    try:
        wait_until(
            lambda: broker.poll() is not None or place.is_up(), "a start is made or not", deadline_s=START_S
        )
        code = broker.poll()
    finally:
        broker.kill()
        broker.wait()
    return [] if code == Exit.DATA_REFUSED else [f"a start without the files that were lost: {code}"]


def run(seed: int, amount: int, *, call: str = STOKER, ways: Sequence[str] = tuple(WAYS)) -> Tally:
    """So many places, lost in each way and on each kind of file system in turns. `call` may be a broken broker."""
    chance, systems = Random(seed), kinds()
    counts: Counter[str] = Counter({"losses": 0})
    found: list[str] = []
    for number in range(amount):
        way, kind = ways[number % len(ways)], systems[number // len(ways) % len(systems)]
        place_seed = chance.randrange(2**32)
        if way == "made read-only":
            # Only of ext4 can a person ask for what the kernel does after an error.
            kind = "ext4"
        faults = lose_one(way, kind, Random(place_seed), call)
        counts["losses"] += 1
        counts[way] += 1
        found += [f"piece {seed}, place {place_seed} ({kind}) {way}: {fault}" for fault in faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="lost_places",
    title="file system or journal lost under a broker at full rate: shut down, unmounted, moved, replaced",
    unit="losses",
    goal=140,
    piece=28,
    run=run,
    needs=hindrance,
)
