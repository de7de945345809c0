"""Nothing fails, and nothing is delivered twice: as many jobs as this machine can do, each counted."""

from pathlib import Path
from random import Random

from stoker.proto.errors import StokerError

from ..proof.harness import Harness, Tally
from .ensemble import Ensemble, in_its_own_directory
from .ledger import UNSEEN_MAX, Ledger
from .spawner import STOKER

WORKERS = 4
APP, KIND = "trials:app", "noop"
OPTIONS = ("--done-kept-max", str(5 * UNSEEN_MAX))
"""So that the journal stays small."""

END_S = 60.0
SHOWN_MAX = 20


def trial(directory: Path, seed: int, jobs: int, *, broker: str = STOKER) -> Tally:
    """So many jobs on one directory, and how many came twice."""
    broken: list[str] = []
    with Ensemble(
        directory, Random(seed), broker=broker, workers=WORKERS, clients=0, app=APP, options=OPTIONS
    ) as ensemble:
        ledger = Ledger(ensemble.client, KIND)
        try:
            ensemble.start_broker()
            ensemble.start_pool()
            ledger.store(jobs)
            ledger.wait_complete(END_S)
        except (AssertionError, StokerError) as error:
            broken.append(f"it came to a standstill: {error}")
    odd = ledger.odd
    counts = {"jobs": ledger.seen, "second deliveries": sum(row["attempt"] > 1 for row in odd)}
    broken += [f"job {row['id']} is {row['state']} after attempt {row['attempt']}" for row in odd[:SHOWN_MAX]]
    return Tally(counts, [f"seed {seed}, {jobs} jobs: {text}" for text in broken])


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
