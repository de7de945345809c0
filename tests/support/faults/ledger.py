"""A ledger: stores very many jobs, and looks at each in the journal afterwards, while it goes on.

Jobs are looked at in the order of their numbers, each once it is finished, and before retention takes it.
How many times each has run is not the journal's to say: see `runs`.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from stoker import Client, JobSpec
from stoker.proto import limits
from stoker.proto.model import FINAL_STATES

from .runs import Runs

UNSEEN_MAX = 10_000
"""So many jobs may be stored and not looked at yet: far fewer than the retention that is given to a broker."""

BATCH = 1_000

REST_S = 0.02
"""Between two looks at how many jobs have run, which cost the broker nothing."""

LAST_REST_S = 0.5
"""Between two pages at the end, which cost it a listing, as long as there are jobs that have not run."""

Row = Mapping[str, Any]


class Ledger:
    """Stores what `make` makes, and looks at each job afterwards."""

    def __init__(
        self, client: Client, runs: Runs, make: Callable[[], JobSpec], *, unseen_max: int = UNSEEN_MAX
    ) -> None:
        self.stored: list[str] = []
        """Ids, in the order in which they were stored."""
        self.seen = 0
        self.odd: list[Row] = []
        """Those that were not done by their first attempt, as the journal has it."""
        self._client = client
        self._runs = runs
        self._make = make
        self._unseen_max = unseen_max
        # A whole page, and what may be running behind it, so that few pages are asked for twice.
        self._page_when = min(limits.JOBS_PAGE_MAX * 3 // 2, unseen_max // 2)
        self._after = 0

    def store(self, count: int) -> None:
        """So many jobs, pipelined, and a look at what is finished."""
        for first in range(0, count, BATCH):
            size = min(BATCH, count - first)
            handles = self._client.enqueue_many(self._make() for _ in range(size))
            self.stored += [handle.id for handle in handles]
            self._keep_up()
            while len(self.stored) - self.seen > self._unseen_max:
                time.sleep(REST_S)
                self._keep_up()

    def _keep_up(self) -> None:
        """Pages, if what has run fills them."""
        while self._runs.count() - self.seen >= self._page_when:
            if self._page() < self._page_when // 2:
                # One that is not finished is in the way: the next page would begin with it again.
                return

    def _page(self) -> int:
        """Take in what is finished of one page, up to the first job that is not; how many."""
        before = self.seen
        for row in self._client.jobs_page(after=self._after, limit=limits.JOBS_PAGE_MAX).jobs:
            if row["state"] not in FINAL_STATES:
                break
            self._after = row["number"]
            self.seen += 1
            if row["state"] != "done" or row["attempt"] != 1:
                self.odd.append(row)
        return self.seen - before

    def wait_complete(self, deadline_s: float) -> None:
        """Until everything that was stored has been looked at."""
        end_s = time.monotonic() + deadline_s
        while self.seen < len(self.stored):
            assert time.monotonic() < end_s, f"{len(self.stored) - self.seen} jobs are not finished"
            page_s = time.monotonic() + LAST_REST_S
            while self._runs.count() < len(self.stored) and time.monotonic() < page_s:
                time.sleep(REST_S)
            if not self._page():
                time.sleep(REST_S)
