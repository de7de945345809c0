"""Power cuts under the real broker: its own system calls, cut anywhere, as the disk may look afterwards.

The fixed script is played several times against the real `stoker broker`, which is killed or told to stop
in between, behind a gate that writes down its trace. Of every cut one legal outcome is made (`power_cut.py`),
and opened by stoker's own journal: all that the kernel had been given for the peers must be in it. And of
all answers it is checked that the log was synced between the commit that they confirm and themselves.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import attrs
from support.waiting import wait_until

from stoker.broker import clock
from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.refusals import StartRefusedError

from ..proof.harness import Harness, Tally
from .account import Account
from .gate import Gate, hindrance
from .place import ENVIRON, START_S, Place, program
from .power_cut import Files, Platter
from .recording import NAME, memory_directory, put
from .script import Script
from .spawner import Spawner
from .tape import Synced
from .trace import Asked, Event, Told, Trace, TracingAccount, order_of
from .witness import ExaminedJournal

PLAYS_PER_LIFE = 2
LIVES = 4
FLOODED_LIFE = 0
"""In which a client enqueues hundreds of jobs at once. They stay in the journal, so once in a trace is enough."""
IMAGES_PER_TRACE = 1000


@attrs.frozen
class Broker:
    """What is traced: how it is started and what is done to its syncs."""

    command: Sequence[str] = attrs.Factory(program)
    options: Sequence[str] = ()
    swallows_syncs: bool = False


def record(directory: Path, broker: Broker, lives: int, chance: Random) -> Trace:
    """The trace of several lives. The first begins on a journal that was made before, and is durable."""
    place = Place(directory)
    with Spawner() as spawner:
        made = place.start(spawner)
        made.signal(signal.SIGTERM)
        assert made.has_ended(START_S), "the broker does not end"
    trace = Trace(place.data, swallows_syncs=broker.swallows_syncs)
    script = Script(place.socket, TracingAccount(trace))
    try:
        for life in range(lives):
            trace.begin()
            _live(place, broker, trace, script, life, chance)
            script.lose()
    finally:
        script.close()
    return trace


def _live(place: Place, broker: Broker, trace: Trace, script: Script, life: int, chance: Random) -> None:
    command = [*broker.command, *place.arguments, *broker.options]
    with Gate(command, trace, log=place.log, environ=ENVIRON) as gate:
        gate.carried_out = trace.carried_out
        wait_until(place.is_up, "the broker listens", deadline_s=START_S)
        if life:
            script.come_back()
        for play in range(PLAYS_PER_LIFE):
            script.play(f"life{life}-{play}")
        if life == FLOODED_LIFE:
            script.flood()
        if chance.random() < 0.5:
            gate.process.send_signal(signal.SIGTERM)
            gate.process.wait(START_S)


def cuts(trace: Trace, count: int, chance: Random) -> Iterator[tuple[int, Files, Account]]:
    """So many cuts: the position, what is on the disk, and what had been told. The account is one object."""
    platter, account, position = Platter(), Account(), 0
    for until in sorted(chance.choices(_moments(trace.events), k=count)):
        for event in trace.events[position:until]:
            if isinstance(event, Asked):
                account.ask(event.number, event.message)
            elif isinstance(event, Told):
                account.hear(event.array)
            else:
                platter.take(event)
        position = until
        yield until, platter.image(chance), account


def _moments(events: Sequence[Event]) -> list[int]:
    """Positions at which something has changed: an operation that is not synced yet, a sync, an answer."""
    return [place for place, event in enumerate(events, 1) if place > 1 and not isinstance(event, Asked)]


def judge(directory: Path, files: Files, account: Account) -> list[str]:
    """What is wrong with one image, in words."""
    put(directory, files)
    journal, now = ExaminedJournal(str(directory / NAME)), clock.now()
    try:
        recovered = journal.load(boot_id="the next boot", boot_ms=1000, wall_ms=now.wall_ms)
        content, faults = journal.content(), journal.faults()
    except (StartRefusedError, JournalBrokenError, JournalFullError) as error:
        return [f"the journal is refused: {error!r}"]
    finally:
        journal.kill()
    if recovered.epoch <= account.epoch:
        faults.append(f"epoch {recovered.epoch} is begun again")
    return [*faults, *account.broken_by(content)]


def run(
    seed: int, amount: int, broker: Broker | None = None, lives: int = LIVES, images: int = IMAGES_PER_TRACE
) -> Tally:
    """So many images, of as many traces as that takes."""
    broker, chance = broker or Broker(), Random(seed)
    counts: Counter[str] = Counter({"images": 0})
    found: list[str] = []
    while counts["images"] < amount:
        with memory_directory() as directory, memory_directory() as images_directory:
            trace = record(directory, broker, lives, chance)
            order = order_of(trace.events)
            counts["traces"] += 1
            counts["answers"] += order.answers
            counts["syncs"] += sum(isinstance(event, Synced) for event in trace.events)
            where = f"piece {seed}, trace {counts['traces']}"
            found += [f"{where}: {fault}" for fault in order.faults]
            for position, files, account in cuts(trace, min(images, amount - counts["images"]), chance):
                faults = judge(images_directory, files, account)
                found += [f"{where}, cut after event {position}: {fault}" for fault in faults]
                counts["images"] += 1
    return Tally(counts, found)


HARNESS = Harness(
    name="trace_images",
    title="power cut under the real broker, from a trace of its system calls",
    unit="images",
    goal=20_000,
    piece=2_000,
    run=run,
    needs=hindrance,
)
