"""Handlers that write down each of their runs, for those who count deliveries. Where, says NOTES.

`app` has plain ones; `both` has in addition one that runs beside others in a worker with many slots.
"""

import os
import time
from pathlib import Path

from support.faults.runs import Runs

from stoker import App, current_job

app = App()
both = App(include=[app])
runs = Runs(Path(os.environ["NOTES"]) / "runs")


def _note() -> None:
    job = current_job()
    runs.note(job.id, job.token)


@app.job()
def note() -> None:
    """Nothing but that."""
    _note()


@app.job()
def nap(ms: int) -> None:
    """Take so long."""
    _note()
    time.sleep(ms / 1000)


@both.job()
async def note_beside() -> None:
    """As `note`."""
    _note()
