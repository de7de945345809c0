"""What had been promised up to some moment, and whether a journal keeps it.

Taken from the records of a history, one after the other, without asking the broker: so it also finds a
broker that promised too early. The oracle judges whole runs; this judges a file.
"""

from collections.abc import Iterator

from stoker.broker.core.job import COLUMNS

from .. import history as h
from .witness import Content

_ID, _STATE = COLUMNS.index("id"), COLUMNS.index("state")
_EPOCH, _COUNTER = COLUMNS.index("token_epoch"), COLUMNS.index("token_counter")


class Promises:
    """See the module."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}
        self._done: set[str] = set()
        self._tokens: dict[str, h.Key] = {}
        self._job_of: dict[h.Key, str] = {}
        self._dropped: set[str] = set()

    def take(self, record: h.Record) -> None:
        """The next thing that happened."""
        if isinstance(record, h.Enqueued) and record.number is not None:
            self._stored[record.id] = record.number
        elif isinstance(record, h.Pushed):
            self._tokens[record.job_id] = record.token
            self._job_of[record.token] = record.job_id
        elif isinstance(record, h.Confirmed) and record.op == "ack":
            self._done.add(self._job_of[record.token])
        elif isinstance(record, h.Dropped):
            self._dropped.add(record.job_id)

    def broken_by(self, content: Content) -> Iterator[str]:
        """Every promise that a journal with this content does not keep, in words."""
        jobs = {job[_ID]: job for job in content["jobs"].values()}
        for id, number in self._stored.items():
            if id in jobs and jobs[id][0] != number:
                yield f"job {id} was acknowledged as number {number} and is number {jobs[id][0]}"
            elif id not in jobs and id not in self._dropped:
                yield f"job {id} was acknowledged and is gone"
        for id in self._done & jobs.keys():
            if jobs[id][_STATE] != "done":
                yield f"job {id} is {jobs[id][_STATE]} although its ack was confirmed"
        for id, token in self._tokens.items():
            if id in jobs and (jobs[id][_EPOCH], jobs[id][_COUNTER]) < token:
                yield f"job {id} was handed out under {token}, of which nothing is on record"
