"""A pool that takes its time to sweep: in order, but a broker that does not wait for it is found out."""

import time
from collections.abc import Iterable

from stoker.cli.main import main as stoker
from stoker.worker import sweep
from stoker.worker.process import Stat

DELAY_S = 0.3

_sweep = sweep.sweep


def slowly(worker_pid: int, nonce: str, known: Iterable[Stat] = ()) -> bool:
    """What the supervisor calls, after a while."""
    time.sleep(DELAY_S)
    return _sweep(worker_pid, nonce, known)


def main() -> None:
    """As `stoker`."""
    setattr(sweep, _sweep.__name__, slowly)
    stoker()
