"""A ledger: how often each of very many jobs was delivered, read from the journal while it goes on.

Jobs are looked at in the order of their numbers, each once it is finished, and before retention takes it.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from stoker import Client, JobSpec
from stoker.proto import limits
from stoker.proto.model import FINAL_STATES

UNSEEN_MAX = 10_000
"""So many jobs may be stored and not looked at yet: far fewer than the retention that is given to a broker."""

BATCH = 1_000

REST_S = 0.1
"""Between two looks that wait for something: each costs the broker a page of jobs."""

Row = Mapping[str, Any]


class Ledger:
    """Stores jobs of one kind, and looks at each afterwards."""

    def __init__(
        self, client: Client, kind: str, args: Sequence[Any] = (), *, unseen_max: int = UNSEEN_MAX
    ) -> None:
        self.stored = 0
        self.seen = 0
        self.odd: list[Row] = []
        """Those that were not done by their first attempt."""
        self._client = client
        self._kind, self._args = kind, args
        self._unseen_max = unseen_max
        self._after = 0

    def store(self, count: int) -> None:
        """So many jobs, pipelined, and a look at what is finished."""
        for first in range(0, count, BATCH):
            size = min(BATCH, count - first)
            self._client.enqueue_many(JobSpec(self._kind, self._args) for _ in range(size))
            self.stored += size
            self.look()
            while self.stored - self.seen > self._unseen_max:
                time.sleep(REST_S)
                self.look()

    def look(self) -> None:
        """Take in all that is finished, up to the first that is not."""
        while True:
            page = self._client.jobs_page(after=self._after, limit=limits.JOBS_PAGE_MAX).jobs
            for row in page:
                if row["state"] not in FINAL_STATES:
                    return
                self._after = row["number"]
                self.seen += 1
                if row["state"] != "done" or row["attempt"] != 1:
                    self.odd.append(row)
            if len(page) < limits.JOBS_PAGE_MAX:
                return

    def wait_complete(self, deadline_s: float) -> None:
        """Until everything that was stored has been looked at."""
        end = time.monotonic() + deadline_s
        while self.seen < self.stored:
            assert time.monotonic() < end, f"{self.stored - self.seen} jobs are not finished"
            time.sleep(REST_S)
            self.look()
