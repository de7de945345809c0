"""Power cuts of a real file system under a broker at full rate: ext4 or XFS, its own journal, its own replay.

While jobs are stored and done as fast as one connection each can, the file system is shut down without a
flush, the broker killed, the file system mounted again. Whatever had been answered must be in the journal.
Every few cuts the broker goes on from there until everything is done, and the oracle judges it all.

What is heard after the cut does not count: a host without power answers nobody. (A broker that runs on for
a moment may well say something then: ext4 was seen to let a sync succeed that waited for its journal while
that was given up.)
"""

import select
import signal
import threading
import time
from collections import Counter
from random import Random

from stoker.proto import messages as m
from stoker.proto import work as w

from .. import history as h
from ..oracle import violations
from ..proof.harness import Harness, Tally
from .account import Account
from .loop_disk import LoopDisk, hindrance, kinds
from .place import START_S, Place, read, row_of
from .recording import NAME, memory_directory
from .script import KIND, Script
from .spawner import STOKER, Spawner
from .speaker import LostError

CUT_AFTER_S = (0.05, 0.3)
"""From the first request; a few hundred commits."""

OUTLIVES_S = 0.1
"""So long after the cut the broker still runs, unless it ends by itself."""

BURST = 8
UNANSWERED_MAX = 64
GO_ON_EVERY = 5


class Rush(Script):
    """A client and a worker that never wait for an answer before they go on."""

    stored = 0

    def lose_power(self) -> None:
        """Client and worker are gone with the broker: what they held is nobody's."""
        self.lose()
        self._held = self._ended = None
        self._account.is_over = False

    def begin(self) -> None:
        """Both sides are there."""
        self._client = self._speaker()
        self._join()

    def rush(self, until_s: float) -> None:
        """Until this instant. LostError if the broker ends before."""
        worker, client = self._both()
        while time.monotonic() < until_s:
            # When it is over no answer counts, but what is written to is to notice it.
            may_ask = self._account.is_over or len(self._account.unanswered) < UNANSWERED_MAX
            readable, writable, _ = select.select([worker, client], [client] if may_ask else [], [], 0.01)
            if writable:
                client.say(*(self._next() for _ in range(BURST)))
            for speaker in readable:
                speaker.hear()
            while worker.has_jobs:
                job = self._take()
                # One that is pushed when the power goes may still be stored as done before it is gone.
                if self._account.counts_delivery(job.token):
                    self._ended = w.Ack(job.token, b"result")
                    worker.say(self._ended)

    def _next(self) -> m.Enqueue:
        self.stored += 1
        return m.Enqueue(f"job-{self.stored}", KIND, b"x" * (self.stored % 300), fresh=True)


def cut_once(
    kind: str, chance: Random, spawner: Spawner, *options: str, go_on: bool
) -> tuple[int, list[str]]:
    """One cut: how many requests had been answered by then, and what was wrong afterwards."""
    account = Account()
    with memory_directory() as directory, LoopDisk(directory, kind) as disk:
        place = Place(directory)
        place.data = disk.mount / "data"
        broker = place.start(spawner, STOKER, *options)
        rush = Rush(place.socket, account)
        rush.begin()
        cut_after_s = chance.uniform(*CUT_AFTER_S)
        power = threading.Timer(cut_after_s, _cut, [account, disk])
        power.start()
        try:
            rush.rush(time.monotonic() + cut_after_s + OUTLIVES_S)
        except LostError:
            pass
        finally:
            power.join()
            broker.signal(signal.SIGKILL)
            assert broker.has_ended(START_S), "it is not dead"
        rush.lose_power()
        answered = len(account.answers)
        disk.come_back()
        try:
            found = list(account.broken_by(place.content(directory / "copy")))
            found += _go_on(place, rush, account, spawner) if go_on else []
        except ValueError as error:
            found = [str(error)]
        finally:
            rush.close()
    return answered, found


def _cut(account: Account, disk: LoopDisk) -> None:
    account.is_over = True
    disk.cut()


def _go_on(place: Place, rush: Rush, account: Account, spawner: Spawner) -> list[str]:
    broker = place.start(spawner)
    rush.come_back()
    rush.finish()
    counts = rush.counts()
    broker.signal(signal.SIGTERM)
    assert broker.has_ended(START_S), "the broker does not end"
    content = read(place.data / NAME)
    account.note(h.Ended(0, tuple(row_of(job) for job in content["jobs"].values()), counts))
    return [*violations(account.history.records), *account.broken_by(content)]


def run(seed: int, amount: int, *options: str) -> Tally:
    """So many cuts, on each kind of file system in turns. `options` are the broker's."""
    chance, systems = Random(seed), kinds()
    counts: Counter[str] = Counter({"cuts": 0})
    found: list[str] = []
    with Spawner() as spawner:
        for number in range(amount):
            kind, cut_seed = systems[number % len(systems)], chance.randrange(2**32)
            go_on = number % GO_ON_EVERY == 0
            answered, faults = cut_once(kind, Random(cut_seed), spawner, *options, go_on=go_on)
            counts["cuts"] += 1
            counts[f"cuts of {kind}"] += 1
            counts["answers"] += answered
            found += [f"piece {seed}, cut {cut_seed} of {kind}: {fault}" for fault in faults]
    return Tally(counts, found)


HARNESS = Harness(
    name="file_system_cuts",
    title="power cut of a real ext4 or XFS under a broker at full rate",
    unit="cuts",
    goal=500,
    piece=25,
    run=run,
    needs=hindrance,
)
