"""A `LoopRunner` whose work is done when the heap says so: the journal thread of a simulated host.

Sometimes the disk is quick, and what was handed over is done before the loop has stopped waiting for it.
"""

import os
from collections import deque
from typing import Any

from stoker.broker.journal import JournalBrokenError, JournalFullError
from stoker.broker.memory import MemoryJournal
from stoker.broker.thread import Done, Work

from ..simulation.disk import SYNC_MS_MAX
from ..simulation.host import Host

QUICK_SHARE = 0.3


class SlowRunner:
    """See the module."""

    def __init__(self, host: Host, journal: MemoryJournal) -> None:
        self._host = host
        self._journal = journal
        self._work: deque[tuple[Work, Done]] = deque()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ticket = 0
        self.submitted = 0
        self.extra_ms = 0
        """How much longer than usual a sync takes at present."""
        self.full_rounds = 0
        """So many more tries to make room fail."""
        self.alive = True

    @property
    def is_busy(self) -> bool:
        return bool(self._work or self._finished)

    def fileno(self) -> int:
        return self._wakeup

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        self.submitted += 1
        self._work.append((work, done))
        if len(self._work) == 1:
            self._begin()

    def _begin(self) -> None:
        self._ticket += 1
        ticket, heap = self._ticket, self._host.heap
        takes_ms = heap.between(0, SYNC_MS_MAX) + heap.between(0, self.extra_ms)
        heap.after(takes_ms, lambda: self._do(ticket))

    def _do(self, ticket: int) -> None:
        if not self.alive or ticket != self._ticket or not self._work:
            return
        work, done = self._work.popleft()
        if self.full_rounds:
            self._journal.fail_commit(1, JournalFullError)
        result, failure = None, None
        try:
            result = work(self._journal)
        except (JournalFullError, JournalBrokenError, KeyError) as error:
            failure = error
        self._finished.append((done, result, failure))
        os.eventfd_write(self._wakeup, 1)
        if self._work:
            self._begin()

    def wait(self, timeout_s: float) -> None:
        while self._work and self._host.heap.happens(QUICK_SHARE):
            self._do(self._ticket)

    def collect(self) -> None:
        while self._finished:
            done, result, error = self._finished.popleft()
            done(result, error)

    def drain_wakeup(self) -> None:
        os.eventfd_read(self._wakeup)

    def close(self) -> None:
        """The process is gone, and with it what it had not stored."""
        self.alive = False
        os.close(self._wakeup)
