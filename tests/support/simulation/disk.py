"""The simulated journal thread: the work of the real committer, done when the heap says so."""

from collections import deque
from collections.abc import Callable

from stoker.broker.journal import Journal, JournalBrokenError, JournalFullError
from stoker.broker.thread import Done, Work

from .host import Host

SYNC_MS_MAX = 4


class SlowDisk:
    """A `JournalRunner`. Work becomes durable at one instant, and is told of at a later one.

    Between the two the broker may die: then the next one finds a batch that nobody was told of.
    """

    def __init__(
        self, host: Host, journal: Journal, when_running: Callable[[Callable[[], None]], None]
    ) -> None:
        self._host = host
        self._journal = journal
        self._when_running = when_running
        self._work: deque[tuple[Work, Done]] = deque()
        self.extra_ms = 0
        """How much longer than usual a sync takes at present."""
        self.alive = True

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        """Do work after all that was given before."""
        self._work.append((work, done))
        if len(self._work) == 1:
            self._begin()

    def _begin(self) -> None:
        heap = self._host.heap
        heap.after(heap.between(0, SYNC_MS_MAX) + heap.between(0, self.extra_ms), self._do)

    def _do(self) -> None:
        if not self.alive:
            return
        work, done = self._work[0]
        result, failure = None, None
        try:
            result = work(self._journal)
        except (JournalFullError, JournalBrokenError, KeyError) as error:
            failure = error
        tell_ms = self._host.heap.between(0, 1)
        self._host.heap.after(tell_ms, lambda: self._when_running(lambda: self._tell(done, result, failure)))

    def _tell(self, done: Done, result: object, failure: BaseException | None) -> None:
        if not self.alive:
            return
        self._work.popleft()
        if self._work:
            self._begin()
        done(result, failure)
