"""Nothing fails, and nothing is delivered twice: as many jobs as this machine can do, each counted.

By handlers, which write down each of their runs: every job once, every token once. What the journal says
must agree with that, and no log may tell of a fault. Half of the jobs are for workers with one slot, half for
one with many.
"""

from pathlib import Path
from random import Random

from stoker import JobSpec
from stoker.proto.errors import StokerError

from ..oracle import nothing_failed_inside
from ..proof.harness import Harness, Tally
from ..waiting import wait_until
from .ensemble import Ensemble, in_its_own_directory
from .ledger import UNSEEN_MAX, Ledger
from .runs import Runs, Tokens, repeated, wrongs
from .spawner import STOKER

WORKERS = 16
"""Each has one job at a time, and waits for a commit for each: so there are some to share a commit."""

WORKERS_BESIDE = 1
"""With many slots: so many a pool has by default."""

APP, KINDS = "counting:both", ("note", "note_beside")
OPTIONS = ("--done-kept-max", str(5 * UNSEEN_MAX))
"""So that the journal stays small."""

END_S = 60.0
SHOWN_MAX = 20


def trial(directory: Path, seed: int, jobs: int, *, broker: str = STOKER) -> Tally:
    """So many jobs on one directory, and how many came twice."""
    random, broken = Random(seed), list[str]()
    runs = Runs(directory / "runs")
    with Ensemble(
        directory, random, broker=broker, workers=WORKERS, clients=0, app=APP, options=OPTIONS
    ) as ensemble:
        ledger = Ledger(ensemble.client, runs, lambda: JobSpec(random.choice(KINDS)))
        try:
            ensemble.start_broker()
            ensemble.start_pool()
            workers = wait_until(lambda: _all_workers(ensemble), "all workers", deadline_s=END_S)
            ledger.store(jobs)
            ledger.wait_complete(END_S)
            broken += [f"worker {pid} died" for pid in sorted(workers - _all_workers(ensemble))]
        except (AssertionError, StokerError) as error:
            broken.append(f"it came to a standstill: {error}")
    tokens = runs.tokens()
    broken += [*_found(ledger, tokens), *nothing_failed_inside(ensemble.logged())][:SHOWN_MAX]
    second = sum(len(used) - 1 for used in tokens.values())
    counts = {"jobs": ledger.seen, "second deliveries": second}
    return Tally(counts, [f"seed {seed}, {jobs} jobs: {text}" for text in broken])


def _all_workers(ensemble: Ensemble) -> set[int]:
    """Pids of all of them; none as long as some are missing."""
    workers = {pid for pid, _ in ensemble.workers()}
    return workers if len(workers) >= WORKERS + WORKERS_BESIDE else set()


def _found(ledger: Ledger, tokens: Tokens) -> list[str]:
    """By what handlers say, then by what the journal does."""
    found = [f"job {job_id} ran as {used}" for job_id, used in repeated(tokens).items()]
    found += wrongs(tokens, ledger.stored, ledger.seen)
    found += [f"job {row['id']} is {row['state']} after attempt {row['attempt']}" for row in ledger.odd]
    return found


def run(seed: int, amount: int) -> Tally:
    """The same in a directory of its own."""
    return in_its_own_directory(lambda directory: trial(directory, seed, amount))


HARNESS = Harness(
    name="happy_path",
    title="jobs without any fault: none is delivered twice",
    unit="jobs",
    goal=10_000_000,
    piece=250_000,
    run=run,
)
