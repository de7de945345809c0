"""Carrying recovered jobs over to this start of the broker. Pure.

Within one boot of the host the boot clock simply goes on. Across a reboot only the wall clock can
tell how much of a wait has passed, and it may have been set meanwhile; so what is left of a wait is
never less than nothing and never more than the length it was stored with.
"""

from collections.abc import Mapping, Sequence

from ..proto import limits
from .core.job import Job
from .core.step import Core
from .journal import Recovered, Start


def restore(core: Core, recovered: Recovered) -> None:
    """Give a new core what the journal holds, on the clocks of this start."""
    core.restore(
        jobs=rebase_jobs(recovered),
        sequence=recovered.sequence,
        finished_counts=recovered.finished_counts,
        kinds=recovered.kinds,
        paused=recovered.paused,
        ids_kept=recovered.ids_kept,
        ended=recovered.ended,
    )


def rebase_jobs(recovered: Recovered) -> Sequence[Job]:
    """The recovered jobs, each moved in place to the epoch and the boot clock of this start."""
    this = recovered.starts[recovered.epoch]
    for job in recovered.jobs:
        rebase(job, recovered.starts, this)
    return recovered.jobs


def rebase(job: Job, starts: Mapping[int, Start], this: Start) -> None:
    """Move one job from the clock of its own `epoch` to that of `this` start."""
    written_by = starts[job.epoch]
    job.epoch = this.epoch
    if written_by.boot_id == this.boot_id:
        return
    # What the old boot clock would read now, had it gone on.
    old_now_ms = written_by.boot_ms + this.wall_ms - written_by.wall_ms
    age_ms = _clamp(old_now_ms - job.created_boot_ms, limits.DURATION_MS_MAX)
    job.created_boot_ms = this.boot_ms - age_ms
    if job.due_boot_ms:
        job.due_boot_ms = this.boot_ms + _clamp(job.due_boot_ms - old_now_ms, job.delay_ms)
    if job.expires_boot_ms:
        job.expires_boot_ms = this.boot_ms + _clamp(job.expires_boot_ms - old_now_ms, job.expires_ms)


def _clamp(duration_ms: int, high_ms: int) -> int:
    return max(0, min(duration_ms, high_ms))
