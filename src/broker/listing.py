"""Answers that come from the journal alone: a page of jobs. The core has no part in them.

A listing shows what is on disk, so what it shows is true for good; it is read behind everything that
was decided before it was asked for.
"""

from ..proto.messages import Jobs, JobsPage
from .core.reporting import row
from .journal import Journal


def page_of_jobs(journal: Journal, asked: Jobs) -> JobsPage:
    """One page, by number. Runs on the journal thread."""
    jobs = journal.list_jobs(
        queue=asked.queue, state=asked.state, kind=asked.kind, after=asked.after, limit=asked.limit
    )
    is_last = len(jobs) < asked.limit
    return JobsPage([row(job) for job in jobs], 0 if is_last else jobs[-1].number)
