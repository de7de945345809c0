"""A real broker whose system calls on its journal fail: once or for ever, with each errno a disk may give.

Behind a gate the n-th write, sync or change of size of a journal's file is not carried out and fails, while
the fixed script is played. A full disk holds the broker up until there is room again, and nothing is lost.
Anything else ends it: within a second, with an exit code of its own, a line in the log that names the file
and no answer whose commit was not synced. The next start on the same files goes on with all that was said.
"""

import errno
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from support.waiting import wait_until

from stoker.config.exits import Exit

from ..proof.harness import Harness, Tally
from .gate import SYNCS, Call, Fail, Gate, Ruling, hindrance
from .kill_points import finish
from .place import ENVIRON, START_S, Command, Place, program
from .recording import NAME, memory_directory
from .script import Script
from .spawner import Spawner
from .speaker import HaltedError, LostError
from .trace import Trace, TracingAccount, order_of

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
CALLS = ("pwrite64", "fdatasync", "ftruncate")
CALLS_MAX = {"pwrite64": 400, "fdatasync": 75, "ftruncate": 4}
"""About so many there are in a script."""

END_S = 1.0
"""From the error to the end of the broker."""

GIVEN_UP_S = 5.0

PATIENCE_S = 1.0
"""So long without an answer is a broker that is held up."""

ROOM_S = 20.0
"""From the return of space to the end of the refusals, at most."""

EXIT_CODES = (Exit.STORAGE, Exit.DATA_REFUSED, Exit.CANNOT_CREATE)
"""The last two only of a broker that could not start."""


class Fault(NamedTuple):
    """Which call fails, how, and whether all after it do too."""

    call: str
    nth: int
    errno: int
    for_ever: bool

    def __str__(self) -> str:
        until = "and all after it" if self.for_ever else "once"
        return f"{self.call} {self.nth} fails with {errno.errorcode[self.errno]}, {until}"

    @property
    def is_full_disk(self) -> bool:
        """A failed sync is none, whatever it says: what it was to make durable may be gone."""
        return self.errno in NO_SPACE and self.call not in SYNCS

    @property
    def is_fatal(self) -> bool:
        """A log that cannot be cut short while it is in use stays long: SQLite goes on with it."""
        return not self.is_full_disk and self.call != "ftruncate"


class FailingTrace(Trace):
    """A trace with a disk that fails. What failed is not in it."""

    def __init__(self, data: Path, fault: Fault) -> None:
        super().__init__(data)
        self._fault = fault
        self._count = 0
        self.is_armed = True
        self.failed_at_s = 0.0
        """When the first call failed; 0: none has."""

    def _of_file(self, call: Call, file: str) -> Ruling:
        if call.name == self._fault.call and self.is_armed:
            self._count += 1
            if self._count == self._fault.nth or (self._fault.for_ever and self._count > self._fault.nth):
                self.failed_at_s = self.failed_at_s or time.monotonic()
                return Fail(self._fault.errno)
        return super()._of_file(call, file)


def try_fault(fault: Fault, spawner: Spawner, command: Command) -> tuple[str, list[str]]:
    """One fault, seen through to the end: what became of the broker, and what was wrong."""
    with memory_directory() as directory:
        place = Place(directory)
        trace = FailingTrace(place.data, fault)
        trace.begin()
        account = TracingAccount(trace)
        script = Script(place.socket, account, PATIENCE_S)
        try:
            end, found = _play(place, command, fault, trace, script)
            script.lose()
            if place.has_journal:
                found += list(account.broken_by(place.content(directory / "copy")))
            found += order_of(trace.events).faults
            found += finish(place, spawner, script, account)
        except (ValueError, AssertionError) as error:
            end, found = "damaged", [str(error)]
        except LostError:
            end, found = "lost", ["the broker has ended where it should have gone on"]
        finally:
            script.close()
    return end, found


def _play(
    place: Place, command: Command, fault: Fault, trace: FailingTrace, script: Script
) -> tuple[str, list[str]]:
    with Gate([*command, *place.arguments], trace, log=place.log, environ=ENVIRON) as gate:
        gate.carried_out = trace.carried_out
        process = gate.process
        wait_until(lambda: place.is_up() or process.poll() is not None, "it listens", deadline_s=START_S)
        try:
            script.play()
        except LostError:
            return _judge_end(place, fault, trace, gate)
        except HaltedError:
            if not fault.is_full_disk:
                # Held up by nothing but itself.
                return _judge_end(place, fault, trace, gate)
            return _judge_halt(fault, trace, script, gate)
        found = ["it has gone on"] if trace.failed_at_s and fault.is_fatal else []
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)
        return "went on", found


def _judge_end(place: Place, fault: Fault, trace: FailingTrace, gate: Gate) -> tuple[str, list[str]]:
    wait_until(lambda: gate.process.poll() is not None, "it ends", deadline_s=GIVEN_UP_S)
    took_s = time.monotonic() - trace.failed_at_s
    found: list[str] = []
    if took_s > END_S:
        found.append(f"it took {took_s:.2f} s to end")
    if gate.process.returncode not in EXIT_CODES:
        found.append(f"the exit code is {gate.process.returncode}")
    said = place.log.read_text()
    if str(place.data / NAME) not in said:
        found.append(f"the log does not name the file: {said[-300:]!r}")
    return f"ended with {gate.process.returncode}", found


def _judge_halt(fault: Fault, trace: FailingTrace, script: Script, gate: Gate) -> tuple[str, list[str]]:
    if gate.process.poll() is not None:
        return "ended", [f"a full disk has ended it with {gate.process.returncode}"]
    trace.is_armed = False

    def has_room() -> bool:
        try:
            script.go_on()
            return script.has_room()
        except HaltedError:
            return False

    wait_until(has_room, f"jobs are taken again: {fault}", deadline_s=ROOM_S)
    return "held up", []


def run(seed: int, amount: int, command: Command = ()) -> Tally:
    """So many faults, drawn from the seed."""
    chance = Random(seed)
    counts: Counter[str] = Counter({"faults": 0})
    found: list[str] = []
    with Spawner() as spawner:
        for _ in range(amount):
            call = chance.choice(CALLS)
            nth = chance.randint(1, CALLS_MAX[call])
            fault = Fault(call, nth, chance.choice(ERRNOS), chance.random() < 0.5)
            end, faults = try_fault(fault, spawner, command or program())
            counts["faults"] += 1
            counts[end] += 1
            found += [f"piece {seed}: {fault}: {text}" for text in faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="storage_errors",
    title="system calls on the journal of a real broker fail: EIO, ENOSPC, EDQUOT, EROFS, once and for ever",
    unit="faults",
    goal=1_000,
    piece=60,
    run=run,
    needs=hindrance,
)
