"""Every call to the disk fails: once, or from then on, with each error that a disk knows.

One fixed run of the real core, committer and journal (two lives, every kind of request) is repeated with
another call failing each time. A full disk is no end: the batch waits, nothing that shows it leaves, and it
is stored once there is room. After any other error nothing leaves any more; the next start, on a sound
disk, must find one of the states that were made, and everything goes on to its end under the oracle's eyes.
"""

import errno
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.refusals import StartRefusedError

from ..committers import MakeCommitter, make_committer
from ..faulty_vfs import OPERATIONS, Disk, faulty_disk
from ..oracle import violations
from ..proof.harness import Harness, Tally
from .recording import NAME, WAL_BYTES_CHECKPOINT, memory_directory, put
from .scenario import Scenario
from .witness import Witness, WitnessedJournal

LIVES = 2
ACTS_PER_LIFE = 20
ACTS_AFTER = 4
"""So many more requests come after an error, whose answers must not leave."""

STARTS_MAX = 5

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
SHORT = 0
"""Stands for a write that is cut short, which is how a disk becomes full in the middle of one, and for a read
of which half is missing, which is how a file reads that has lost its end."""

ROOM_RETURNS = frozenset({errno.ENOSPC, errno.EDQUOT, SHORT})


class Case(NamedTuple):
    """Which call fails, and how."""

    operation: str
    nth: int
    error: int
    for_ever: bool

    @property
    def is_full(self) -> bool:
        """A disk without room, which no broker may end of."""
        return self.operation == "write" and self.error in ROOM_RETURNS

    def __str__(self) -> str:
        error = errno.errorcode.get(self.error, "short")
        return f"{self.operation} {self.nth} fails with {error} {'for ever' if self.for_ever else 'once'}"


class Trial:
    """One run with one failing call. `faults` says what was wrong, in words."""

    def __init__(self, seed: int, directory: Path, disk: Disk, committer: MakeCommitter) -> None:
        self._directory = directory
        self._disk = disk
        # There is no tape: all that counts is what the next start finds.
        self._witness = Witness(lambda: 0)
        self._scenario = Scenario(Random(seed), lambda: 0, committer)
        self._journal: WitnessedJournal | None = None
        self.faults: list[str] = []
        self.outcome = "unnoticed"
        """What the broker made of it: `unnoticed`, `waited` for room, or `ended`."""

    def run(self, case: Case | None) -> None:
        """The whole of it; without a case nothing fails."""
        if case is not None:
            short, system_errno = case.error == SHORT, case.error or errno.ENOSPC
            self._disk.fail(
                case.operation, case.nth, system_errno=system_errno, for_ever=case.for_ever, short=short
            )
        for life in range(LIVES):
            self._begin(case)
            self._live(case)
            if life < LIVES - 1:
                self._end(is_clean=self._scenario.station.failure is None, case=case)
        if self._scenario.station.failure is not None:
            self._end(is_clean=False, case=case)
            self._begin(case)
        self._disk.heal()
        self._scenario.finish()
        self.faults += self._witness.faults
        if not self.faults:
            self.faults += violations(self._scenario.history.records)
        self._end(is_clean=True, case=case)

    def _begin(self, case: Case | None) -> None:
        """Start until it works, as a service manager does; the disk is repaired after the first failure."""
        for _ in range(STARTS_MAX):
            self._journal = WitnessedJournal(
                str(self._directory / NAME),
                self._witness,
                vfs=self._disk.name,
                wal_bytes_checkpoint=WAL_BYTES_CHECKPOINT,
            )
            try:
                self._scenario.begin(self._journal)
                return
            except JournalFullError:
                self._failed_to_start("waited")
            except (JournalBrokenError, StartRefusedError) as error:
                self._failed_to_start("ended")
                if case is not None and case.is_full:
                    self.faults.append(f"no room was taken for {error!r}")
        raise AssertionError(f"{case}: no start on a sound disk")

    def _failed_to_start(self, outcome: str) -> None:
        assert self._journal is not None
        self._journal.kill()
        self.outcome = outcome
        self._disk.heal()

    def _live(self, case: Case | None) -> None:
        scenario = self._scenario
        for what in (*[scenario.act] * ACTS_PER_LIFE, scenario.station.settle):
            what()
            if scenario.station.committer.is_stuck:
                self._wait_for_room(case)
            if scenario.station.failure is not None:
                self._after_error(case)
                return
        scenario.station.settle()

    def _wait_for_room(self, case: Case | None) -> None:
        """Whatever comes while a batch does not fit waits with it, until there is room."""
        self.outcome = "waited"
        self._expect_silence()
        if case is None or not case.is_full:
            self.faults.append("the broker waits for room that was never lacking")
        self._disk.heal()
        self._scenario.station.retry()

    def _after_error(self, case: Case | None) -> None:
        self.outcome = "ended"
        if case is None or case.is_full:
            self.faults.append(f"the broker ended: {self._scenario.station.failure!r}")
        self._expect_silence()

    def _expect_silence(self) -> None:
        """More comes in, and not one answer or job goes out."""
        station = self._scenario.station
        before = station.left
        for _ in range(ACTS_AFTER):
            self._scenario.act()
            station.pump()
        if station.left != before:
            self.faults.append(f"{station.left - before} messages left after the error")

    def _end(self, *, is_clean: bool, case: Case | None) -> None:
        """The life is over. That a clean end fails is no matter: all that was answered is on disk."""
        self._scenario.end()
        assert self._journal is not None
        if is_clean:
            try:
                self._journal.close()
            except (JournalBrokenError, JournalFullError):
                self.outcome = "ended"
                self._disk.heal()
        else:
            self._journal.kill()
            self._disk.heal()


def cases(seed: int) -> list[Case]:
    """All of them, as a run without a fault shows what can fail."""
    with memory_directory() as directory, faulty_disk() as disk:
        Trial(seed, directory, disk, make_committer).run(None)
        calls = Counter(operation for operation, _ in disk.calls)
    return [
        Case(operation, nth, error, for_ever)
        for operation in OPERATIONS
        for nth in range(1, calls[operation] + 1)
        for error in (*ERRORS, *([SHORT] if operation in ("read", "write") else []))
        for for_ever in (False, True)
    ]


def run(seed: int, amount: int, committer: MakeCommitter = make_committer) -> Tally:
    """All cases of the run of that seed; if they are more than that, so many of them, drawn by the seed."""
    every = cases(seed)
    chosen = every if len(every) <= amount else Random(seed).sample(every, amount)
    return try_all(seed, chosen, committer)


def try_all(seed: int, chosen: Sequence[Case], committer: MakeCommitter = make_committer) -> Tally:
    """These cases, one after the other."""
    counts: Counter[str] = Counter()
    found: list[str] = []
    with memory_directory() as directory, faulty_disk() as disk:
        for case in chosen:
            put(directory, {})
            disk.heal()
            disk.failures = 0
            trial = Trial(seed, directory, disk, committer)
            trial.run(case)
            counts["cases"] += 1
            counts["failed calls"] += disk.failures
            counts[trial.outcome] += 1
            found += [f"run {seed}, {case}: {fault}" for fault in trial.faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="failing_calls",
    title="every call to the disk fails, with each error, once and for ever",
    unit="cases",
    goal=20_000,
    piece=10_000,
    run=run,
)
