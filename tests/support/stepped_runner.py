"""A journal runner without a thread: work is done when the test says so, in order.

Stands in for `JournalThread`. Until `held` is set it does everything as soon as the loop waits for
it, as a fast disk would; while held, work stays in flight like on a disk that does not answer.
"""

import os
from collections import deque
from typing import Any

from stoker.broker.journal import Journal
from stoker.broker.thread import Done, Work


class SteppedRunner:
    """See the module."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.submitted = 0
        self.held = False
        self.small: list[bool] = []
        """Of each piece of work, whether it was said to be small."""
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._finished)

    def fileno(self) -> int:
        return self._wakeup

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        self.submitted += 1
        self.small.append(is_small)
        self._waiting.append((work, done))

    def do_next(self) -> None:
        """Do one piece of work and call back, as a loop that collects at once."""
        self._work()
        self.collect()

    def do_all(self) -> None:
        """Until nothing is left, what callbacks submit included."""
        while self._waiting:
            self.do_next()

    def let_one_go(self) -> None:
        """The disk answers for one piece of work, if it has any, and the loop is woken to collect that."""
        if self._waiting:
            self._work()
            os.eventfd_write(self._wakeup, 1)

    def let_go(self) -> None:
        """The disk answers again, and the loop is woken."""
        self.held = False
        os.eventfd_write(self._wakeup, 1)

    def wait(self, timeout_s: float) -> None:
        del timeout_s
        while self._waiting and not self.held:
            self._work()

    def _work(self) -> None:
        work, done = self._waiting.popleft()
        result, failure = None, None
        try:
            result = work(self.journal)
        except Exception as error:  # noqa: BLE001  handed over whole, as the thread does
            failure = error
        self._finished.append((done, result, failure))

    def collect(self) -> None:
        while self._finished:
            done, result, error = self._finished.popleft()
            done(result, error)

    def drain_wakeup(self) -> None:
        os.eventfd_read(self._wakeup)
        self.wait(0)
