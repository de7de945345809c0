"""A disk that fills up under a broker: by jobs, by somebody else, or a limit on the size of files; and a start on it.

The state directory is on a small file system of its own. When it is full, enqueues are refused with
`storage_full` and every ack is taken; the broker neither ends nor starts again and again, not even when it is
killed and has to start on the full disk. When there is room again, jobs are taken without anybody's help.
"""

import os
import resource
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from support.waiting import wait_until

from stoker.proto import limits
from stoker.proto import messages as m
from stoker.proto import work as w

from .. import history as h
from ..oracle import violations
from ..proof.harness import Harness, Tally
from .account import Account
from .place import START_S, Place, read, row_of
from .recording import NAME, memory_directory
from .script import KIND, Script
from .spawner import STOKER, Spawned, Spawner
from .speaker import HaltedError, LostError

WAYS = ("jobs", "somebody else", "somebody else meanwhile", "a limit of file sizes")
DISK_MIB = (72, 96)
FILE_MIB = (40, 60)
PAYLOAD_BYTES = (1000, 400_000)
RESULT_BYTES = 4000
BURST = 8
JOBS_MAX = 5000
ACKS = 12
"""Of a full disk, before it is killed and after."""

ROOM_S = 20.0

PATIENCE_S = 5.0
"""Nothing has to wait for room while only jobs are refused."""


class Customers(Script):
    """A client that fills the disk and a worker that goes on whatever happens."""

    def __init__(self, path: str, account: Account, chance: Random) -> None:
        super().__init__(path, account, PATIENCE_S)
        self._chance = chance
        self._stored = 0

    def has_survey(self) -> bool:
        """Whether the broker has seen its disk, and so has the ballast on board."""
        self._client = self._client or self._speaker()
        return self._status()["storage"]["free_bytes"] is not None

    def begin(self) -> None:
        """Some jobs, and some of them done."""
        self.store(2 * ACKS + 2 * BURST)
        self.work(BURST)

    def store(self, count: int) -> None:
        """So many more jobs. HaltedError when they are refused."""
        self._join()
        while count > 0:
            numbers = range(self._stored, self._stored + min(count, BURST))
            self._stored += len(numbers)
            count -= len(numbers)
            self._ask(*(self._job(number) for number in numbers))

    def _job(self, number: int) -> m.Enqueue:
        length = self._chance.randint(*PAYLOAD_BYTES)
        return m.Enqueue(f"job-{number}", KIND, bytes(length), queue="full")

    def is_refused(self) -> bool:
        """Whether a job is refused for want of space."""
        try:
            self.store(1)
        except HaltedError as halt:
            return str(halt) == "storage_full"
        return False

    def work(self, count: int) -> None:
        """Take and ack so many jobs."""
        for _ in range(count):
            job = self._held or self._take()
            self._end(job, lambda job: w.Ack(job.token, bytes(self._chance.randint(0, RESULT_BYTES))))


@contextmanager
def small_disk(place: Path, mib: int) -> Generator[Path]:
    """A file system of its own in memory, gone at the end."""
    place.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}M,mode=0700", "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class FullDisk:
    """One run: a broker on its small disk, and those who use it."""

    def __init__(self, directory: Path, disk: Path, spawner: Spawner, chance: Random, call: str) -> None:
        self.account = Account()
        self._call = call
        self._place = Place(directory)
        self._place.data = disk / "data"
        self._disk = disk
        self._hog = disk / "hog"
        self._spawner = spawner
        self._chance = chance
        self._broker = self._start()
        self.customers = Customers(self._place.socket, self.account, chance)

    def _start(self) -> Spawned:
        return self._place.start(self._spawner, self._call)

    def fill(self, way: str) -> None:
        """Until enqueues are refused."""
        wait_until(self.customers.has_survey, "the broker has looked at the disk")
        self.customers.begin()
        hog = threading.Thread(target=self._fill_with_a_hog)
        if way.startswith("somebody else"):
            hog.start()
        if way == "somebody else":
            hog.join()
        if way == "a limit of file sizes":
            self._allow_files(self._chance.randint(*FILE_MIB) * limits.MIB)
        with suppress(HaltedError):
            self.customers.store(JOBS_MAX)
        if hog.ident is not None:
            hog.join()

    def _fill_with_a_hog(self) -> None:
        with open(self._hog, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(65536))

    def _allow_files(self, length: int) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(self._broker.pid, resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))

    def kill(self) -> None:
        """And start again on the full disk."""
        self._broker.signal(signal.SIGKILL)
        assert self._broker.has_ended(START_S), "it is not dead"
        self.customers.lose()
        self._broker = self._start()
        self.customers.come_back()

    def make_room(self) -> None:
        """Undo whatever filled it."""
        self._hog.unlink(missing_ok=True)
        subprocess.run(["mount", "-o", "remount,size=512M", str(self._disk)], check=True)
        self._allow_files(resource.RLIM_INFINITY)

    def takes_jobs(self) -> bool:
        """Whether a job is taken again, with nobody having helped."""
        return not self.customers.is_refused()

    def end(self) -> list[str]:
        """Finish everything, and ask the oracle."""
        self.customers.finish()
        counts = self.customers.counts()
        self._broker.signal(signal.SIGTERM)
        assert self._broker.has_ended(START_S), "the broker does not end"
        content = read(self._place.data / NAME)
        self.account.note(h.Ended(0, tuple(row_of(job) for job in content["jobs"].values()), counts))
        return [*violations(self.account.history.records), *self.account.broken_by(content)]

    @property
    def starts(self) -> int:
        """How often a broker has come up."""
        return self._place.log.read_text().count(" ready ")


def fill_one(way: str, chance: Random, spawner: Spawner, call: str = STOKER) -> list[str]:
    """One disk, filled in this way; what was wrong."""
    killed = chance.random() < 0.5
    with memory_directory() as directory, small_disk(directory / "disk", chance.randint(*DISK_MIB)) as disk:
        full = FullDisk(directory, disk, spawner, chance, call)
        try:
            full.fill(way)
            found = [] if full.customers.is_refused() else ["a full disk still takes jobs"]
            full.customers.work(ACKS)
            if killed:
                full.kill()
                full.customers.work(ACKS)
            full.make_room()
            wait_until(full.takes_jobs, "jobs are taken again", deadline_s=ROOM_S)
            found += full.end()
            if full.starts != 1 + killed:
                found.append(f"the broker has come up {full.starts} times")
        except (AssertionError, HaltedError, ValueError) as error:
            found = [f"{type(error).__name__}: {error}"]
        except LostError:
            found = ["a full disk has ended the broker"]
        finally:
            full.customers.close()
    return found


def run(seed: int, amount: int) -> Tally:
    """So many disks, filled in turns by each of the ways."""
    chance = Random(seed)
    counts: Counter[str] = Counter({"disks": 0})
    found: list[str] = []
    with Spawner() as spawner:
        for number in range(amount):
            way = WAYS[(seed + number) % len(WAYS)]
            disk_seed = chance.randrange(2**32)
            faults = fill_one(way, Random(disk_seed), spawner)
            counts["disks"] += 1
            counts[f"filled by {way}"] += 1
            found += [f"piece {seed}, disk {disk_seed} filled by {way}: {fault}" for fault in faults]
    return Tally(counts, found)


def hindrance() -> str:
    """Why there is no disk to fill; empty if there is."""
    if os.geteuid() != 0:
        return "mounting a small file system takes root"
    mounted = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True
    )
    return "this root may not mount" if mounted.returncode else ""


HARNESS = Harness(
    name="full_disks",
    title="disk filled by jobs, by others, by a limit of file sizes; kill and start on it",
    unit="disks",
    goal=200,
    piece=12,
    run=run,
    needs=hindrance,
)
