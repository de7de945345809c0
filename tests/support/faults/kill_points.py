"""A broker killed at every system call by which it changes a file or says something.

The fixed script is played against the real `stoker broker` behind a gate, which kills it as it is about to
make its n-th such call, whichever of its threads makes it. What is then on disk must hold all that it had
said. Another broker starts on the files, whatever had no answer is asked again, and all is brought to an
end: the oracle judges the whole.

The calls of a run are numbered by a run that is not killed. The seed says where a piece begins: pieces with
seeds that follow each other cover every call of the script, the start and the end of the broker included.
"""

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.waiting import wait_until

from .. import history as h
from ..oracle import violations
from ..proof.harness import Harness, Tally
from .account import Account
from .gate import KILL, PASS, Call, Gate, Ruling, hindrance
from .place import ENVIRON, START_S, Command, Place, program, read, row_of
from .recording import NAME, memory_directory
from .script import Script
from .spawner import Spawner
from .speaker import LostError


def is_counted(call: Call, directory: Path) -> bool:
    """Whether it is a boundary: not so the many files that an interpreter opens at its start."""
    return call.name != "openat" or call.path().startswith(str(directory))


class Boundary(NamedTuple):
    """Where a run was ended."""

    number: int
    name: str
    path: str


class Stop(NamedTuple):
    """Where a run is to be ended: at the n-th of its calls, or of those of one name. The 0th is never reached."""

    nth: int = 0
    name: str = ""


NOWHERE = Stop()


class Turnstile:
    """Counts the calls, and kills at one of them."""

    def __init__(self, directory: Path, kill_at: Stop = NOWHERE) -> None:
        self._directory = directory
        self._kill_at = kill_at
        self.passed: list[str] = []
        """The names of the calls, in their order."""
        self.stopped: Boundary | None = None

    def __call__(self, call: Call) -> Ruling:
        if not is_counted(call, self._directory):
            return PASS
        self.passed.append(call.name)
        nth, name = self._kill_at
        if name not in ("", call.name) or nth != (self.passed.count(name) if name else len(self.passed)):
            return PASS
        self.stopped = Boundary(len(self.passed), call.name, call.path())
        return KILL


def play(place: Place, command: Command, turnstile: Turnstile, account: Account) -> Script:
    """The script, until the turnstile stops it or to its end."""
    with Gate([*command, *place.arguments], turnstile, log=place.log, environ=ENVIRON) as gate:

        def is_settled() -> bool:
            return place.is_up() or gate.process.poll() is not None

        wait_until(is_settled, "the broker listens", deadline_s=START_S)
        script = Script(place.socket, account)
        try:
            script.play()
        except LostError:
            assert turnstile.stopped is not None, "the broker died by itself"
        else:
            gate.process.send_signal(signal.SIGTERM)
        gate.process.wait(START_S)
    script.lose()
    return script


def finish(place: Place, spawner: Spawner, script: Script, account: Account) -> list[str]:
    """Start again on the same files, end everything, and ask the oracle."""
    broker = place.start(spawner)
    try:
        script.come_back()
        script.finish()
        counts = script.counts()
    except LostError:
        return [f"the broker has ended after its restart: {place.log.read_text()[-500:]}"]
    finally:
        script.close()
        broker.signal(signal.SIGTERM)
        assert broker.has_ended(START_S), "the broker does not end"
    content = read(place.data / NAME)
    account.note(h.Ended(0, tuple(row_of(job) for job in content["jobs"].values()), counts))
    return [*violations(account.history.records), *account.broken_by(content)]


def try_boundary(stop: Stop, command: Command, spawner: Spawner) -> tuple[Boundary | None, list[str]]:
    """Kill at one boundary and see it through. No boundary: the script was over before."""
    account = Account()
    with memory_directory() as directory:
        place = Place(directory)
        turnstile = Turnstile(directory, stop)
        script = play(place, command, turnstile, account)
        try:
            found = list(account.broken_by(place.content(directory / "copy"))) if place.has_journal else []
            found += finish(place, spawner, script, account)
        except ValueError as error:
            found = [str(error)]
    return turnstile.stopped, found


def boundaries(command: Command) -> list[str]:
    """The calls that a run makes which nobody kills: number 1 is the first of them."""
    with memory_directory() as directory:
        turnstile = Turnstile(directory)
        play(Place(directory), command, turnstile, Account())
    return turnstile.passed


def run(seed: int, amount: int, command: Command = (), stride: int = 1) -> Tally:
    """So many boundaries from the one on that the seed says; every `stride`th of them."""
    command = command or program()
    total = len(boundaries(command))
    numbers = [1 + (seed * amount + step) * stride % total for step in range(amount)]
    tally = kill_at(seed, list(map(Stop, numbers)), command)
    return Tally({"calls of the script": total, **tally.counts}, tally.violations)


def kill_at(seed: int, stops: Sequence[Stop], command: Command) -> Tally:
    """One run for each of these boundaries."""
    counts: Counter[str] = Counter({"boundaries": 0})
    found: list[str] = []
    with Spawner() as spawner:
        for stop in stops:
            boundary, faults = try_boundary(stop, command, spawner)
            counts["boundaries"] += 1
            if boundary is not None:
                counts[f"kills at {boundary.name}"] += 1
            found += [f"piece {seed}, killed at {boundary or stop}: {fault}" for fault in faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="kill_points",
    title="SIGKILL at each system call of a broker by which it changes a file or says something",
    unit="boundaries",
    # Twice what a script has: no two runs have exactly the same calls.
    goal=1200,
    piece=100,
    run=run,
    needs=hindrance,
)
