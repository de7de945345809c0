"""The journal thread: where the journal's work is done as a rule, and the hand-over to it and back.

The loop gives it work, in order; it does it, in order. What is finished waits in a queue until the
loop collects it: the callbacks run on the loop, never here. While nothing is in flight and the disk is
fast (see `pace`), the loop does small work itself. Either way one of the two uses the journal at a time.

Two ways back, because a thread that shares the interpreter lock with a busy loop starves. For a
short time after handing over, the loop waits on a lock (`wait`), during which the thread has the
interpreter to itself and most commits finish; that is the quick way. Otherwise the loop goes on with
its events, and the thread wakes it through an event descriptor that the loop watches. A loop that
never sleeps would still not let the thread in, so `YieldToJournal` makes it wait a moment in each
round while work is in flight.

Without trio on purpose: a simulation replaces this class by one that does the work when told to.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

import trio

from .journal import Journal
from .pace import Pace

HANDOVER_S = 0.001
"""How long the loop waits for what it just handed over, before it goes back to its events."""

YIELD_S = 0.00005
"""How long a busy loop waits in each round while work is in flight: enough for the thread to get in."""

Work = Callable[[Journal], Any]
Done = Callable[[Any, BaseException | None], None]
"""Called on the loop with the result of the work, or with what it raised."""


class JournalRunner(Protocol):
    """Whoever does work on the journal, in the order given."""

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        """Do `work` after all that was given before; `done` is called later, from the loop.

        `is_small` says that it writes a few rows and reads none.
        """
        ...


class LoopRunner(JournalRunner, Protocol):
    """A runner that a loop waits for; what the methods do is said at `JournalThread`."""

    submitted: int

    @property
    def is_busy(self) -> bool: ...

    def fileno(self) -> int: ...

    def wait(self, timeout_s: float) -> None: ...

    def collect(self) -> None: ...

    def drain_wakeup(self) -> None: ...


class JournalThread:
    """Runs work on a journal that it opens itself, in a thread of its own."""

    def __init__(self, open_journal: Callable[[], Journal]) -> None:
        self._open = open_journal
        self._work: SimpleQueue[tuple[Work, Done, bool] | None] = SimpleQueue()
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()
        self._journal: Journal | None = None
        self._pace = Pace()
        self._in_flight = 0
        self.submitted = 0
        """How much work was ever given: tells whether something was handed over since."""
        self._signal = threading.Lock()
        self._signal.acquire()
        self._loop_sleeps = True
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A daemon: a disk that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Readable when work has finished that nobody was waiting for."""
        return self._wakeup

    @property
    def is_busy(self) -> bool:
        """Whether work is in flight or uncollected."""
        return self._in_flight > 0

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        """Give work to the thread; or do it here and now, if it is small, alone, and the disk is fast."""
        is_alone = self._in_flight == 0
        self._in_flight += 1
        self.submitted += 1
        if is_small and is_alone and self._journal is not None and self._pace.is_fast:
            self._do(self._journal, work, done, is_small=True)
        else:
            self._work.put((work, done, is_small))

    def wait(self, timeout_s: float) -> None:
        """Let the thread have the interpreter until something has finished, or the time is over.

        The caller collects right after it. Work that finishes later wakes the loop by the descriptor.
        """
        if self._in_flight and not self._finished:
            self._loop_sleeps = False
            self._signal.acquire(timeout=timeout_s)
            # Set before the loop looks at `_finished` again: so either it sees what has finished, or
            # the thread sees that it has to wake it.
            self._loop_sleeps = True

    def give_way(self) -> None:
        """As `wait`, for a caller that does not collect: what has finished wakes the loop."""
        self.wait(YIELD_S)
        if self._finished:
            os.eventfd_write(self._wakeup, 1)

    def collect(self) -> None:
        """Call back for everything that has finished."""
        # Taken before looking, so that a signal of later work is never taken with it.
        self._signal.acquire(blocking=False)
        while self._finished:
            done, result, error = self._finished.popleft()
            self._in_flight -= 1
            done(result, error)

    def drain_wakeup(self) -> None:
        """Make the descriptor unreadable again."""
        try:
            os.eventfd_read(self._wakeup)
        except BlockingIOError:
            # A `collect` in between has taken what this was about.
            return

    def stop(self, timeout_s: float) -> bool:
        """End the thread after the work it was given; False if it is not over in time."""
        self._work.put(None)
        self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        if ended:
            os.close(self._wakeup)
        return ended

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, done, is_small = item
            try:
                journal = self._journal or self._open()
            except BaseException as error:  # noqa: BLE001  the loop decides what it means
                self._finished.append((done, None, error))
            else:
                # From here on the loop may use it too, but only while nothing is in flight here.
                self._journal = journal
                self._do(journal, work, done, is_small=is_small)
            self._tell()

    def _do(self, journal: Journal, work: Work, done: Done, *, is_small: bool) -> None:
        started_s = time.monotonic()
        result, failure = None, None
        try:
            result = work(journal)
        except BaseException as error:  # noqa: BLE001  the loop decides what any error of the journal means
            failure = error
        if is_small:
            self._pace.note(time.monotonic() - started_s)
        self._finished.append((done, result, failure))

    def _tell(self) -> None:
        # Only this thread releases and only the loop acquires, so the look before is no race.
        if self._signal.locked():
            self._signal.release()
        if self._loop_sleeps:
            os.eventfd_write(self._wakeup, 1)


class YieldToJournal(trio.abc.Instrument):
    """Gives the journal thread the interpreter for a moment before each wait of the loop."""

    def __init__(self, thread: JournalThread) -> None:
        self._thread = thread

    def before_io_wait(self, timeout: float) -> None:
        """Called by Trio in every round, also in those that would not sleep."""
        if self._thread.is_busy:
            self._thread.give_way()
