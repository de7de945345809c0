"""One life of a broker without sockets: the real core and the real committer on a journal.

This is the driver with nothing around it. Work on the journal is done when it is handed over, and told of
at the next `pump`: meanwhile the next batch gathers, as it does while a real disk syncs. Peers are numbers;
what is answered and what is handed out is noted in the history at the moment it leaves.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.broker.journal import Journal, JournalBrokenError, JournalFullError, Retention
from stoker.broker.questions import look_up
from stoker.broker.thread import Done, Work
from stoker.proto import work as w
from stoker.proto.messages import Drop, Message
from stoker.proto.model import FINAL_STATES

from ..committers import MakeCommitter, make_committer
from ..driving import Clock, restored

Answered = Callable[[int, Message, Message], None]
"""Connection, request and answer."""

Pushed = Callable[[int, w.Job], None]
"""Connection of the worker, and the job."""


class DoneAtOnce:
    """A `JournalRunner` that does work when it gets it, and tells of it when it is asked to."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._finished: deque[tuple[Done, Any, BaseException | None]] = deque()

    def submit(self, work: Work, done: Done, *, is_small: bool = False) -> None:
        try:
            self._finished.append((done, work(self._journal), None))
        except (JournalFullError, JournalBrokenError) as error:
            self._finished.append((done, None, error))

    def tell(self) -> None:
        while self._finished:
            done, result, error = self._finished.popleft()
            done(result, error)


class Station:
    """See the module. `answered` and `pushed` are called for what leaves the broker, `deleting` with the ids
    of jobs whose rows may go with the next batch."""

    def __init__(
        self,
        journal: Journal,
        rules: Rules,
        clock: Clock,
        chance: Callable[[], float],
        *,
        answered: Answered,
        pushed: Pushed,
        deleting: Callable[[list[str]], None],
        committer: MakeCommitter = make_committer,
    ) -> None:
        self._clock = clock
        self._answered = answered
        self._pushed = pushed
        self._deleting = deleting
        self.journal = journal
        self.core = restored(journal, Core, rules, clock, chance)
        self._runner = DoneAtOnce(journal)
        self.committer = committer(self._runner, self.core.take_changes, self._release, self, self._make_room)
        self._asked: dict[tuple[int, int], Message] = {}
        self._connections = 0
        self._requests = 0
        self._lookups: list[int] = []
        self.failure: BaseException | None = None
        self._was_full = False
        self.left = 0
        """How much has left the broker: answers and jobs."""
        for owner in self.core.absent_owners():
            # Whoever held a job when the last life ended has ended with it.
            self.step(ev.OwnerGone(owner))

    # --- what peers do ----------------------------------------------------------------------------------

    def connect(self) -> int:
        """A new connection; its number."""
        self._connections += 1
        self.step(ev.Connected(self._connections, 1000, 1))
        return self._connections

    def ask(self, connection: int, message: Any) -> None:
        """Send a request; it is answered when its commit is done."""
        self._requests += 1
        self._asked[connection, self._requests] = message
        self._look_then_step(ev.Received(connection, self._requests, message))

    def _look_then_step(self, event: ev.Received) -> None:
        wants, event.asked_at = self.core.wants(event.message), self.core.steps
        if not wants:
            self.step(event)
            return

        def came_back(found: dict[str, ev.Found]) -> None:
            event.found = found
            self._lookups.remove(event.asked_at)
            self.step(event)

        self._lookups.append(event.asked_at)
        self.committer.look(lambda journal: look_up(journal, wants), came_back)

    def step(self, event: ev.Event) -> None:
        """One event into the core."""
        if isinstance(event, ev.Received) and isinstance(event.message, Drop):
            finished = [found.job for found in event.found.values() if found.job is not None]
            self._deleting([job.id for job in finished if job.state in FINAL_STATES])
        effects = self.core.step(event, self._clock.now())
        self.committer.add([effect for effect in effects if not isinstance(effect, fx.LookAgain)])
        for effect in effects:
            if isinstance(effect, fx.LookAgain):
                self._look_then_step(effect.event)
        self.core.trim_departed(min(self._lookups, default=self.core.steps))

    def pump(self) -> None:
        """Hand over what gathered, and tell of what has finished."""
        self.committer.flush()
        self._runner.tell()

    def settle(self) -> None:
        """Until everything is answered, or the journal took no more."""
        while self.failure is None and not self.committer.is_stuck and not self.committer.is_idle:
            self.pump()

    # --- what leaves --------------------------------------------------------------------------------------

    def _release(self, effects: Sequence[fx.Effect], payloads: Mapping[int, bytes]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Answer | fx.Refuse):
                self.left += 1
                asked = self._asked.pop((effect.connection, effect.request))
                answer = effect.message if isinstance(effect, fx.Answer) else effect.refusal
                self._answered(effect.connection, asked, answer)
            elif isinstance(effect, fx.Push) and isinstance(effect.message, w.Job):
                self.left += 1
                job = effect.message
                self._pushed(effect.connection, job._replace(payload=payloads[job.number]))

    # --- what the committer reports -----------------------------------------------------------------------

    def _make_room(self, journal: Journal) -> None:
        journal.checkpoint_if_due()

    def commit_begun(self) -> None:
        pass

    def commit_full(self) -> None:
        self._was_full = True
        self.step(ev.StorageChanged(full=True))

    def retry(self) -> None:
        """There may be room again."""
        self.committer.retry()
        self._runner.tell()

    def commit_stored(self) -> None:
        if self._was_full:
            self._was_full = False
            self.step(ev.StorageChanged(full=False))

    def commit_failed(self, error: BaseException) -> None:
        self.failure = error

    # --- chores -------------------------------------------------------------------------------------------

    def prune(self, retention: Retention, boot_ms: int, limit: int) -> None:
        """Look for rows whose retention is over, behind everything decided so far, and let the core decide."""
        asked_at = self.core.steps
        self._lookups.append(asked_at)

        def came_back(rows: Sequence[Any]) -> None:
            self._lookups.remove(asked_at)
            self._deleting([str(row[1]) for row in rows])
            self.step(ev.PruneFound(rows, asked_at))

        self.committer.look(
            lambda journal: journal.prunable(retention, boot_ms=boot_ms, limit=limit), came_back
        )

    def forget_ids(self, boot_ms: int, limit: int) -> None:
        """The journal forgets ids whose time is over."""
        self._visit(
            lambda journal: journal.forget_ids(boot_ms=boot_ms, limit=limit),
            lambda count: self.step(ev.IdsForgotten(count)),
        )

    def checkpoint(self) -> None:
        """Fold the log in, if it is due."""
        self._visit(lambda journal: journal.checkpoint_if_due(), lambda _: None)

    def _visit(self, work: Work, done: Callable[[Any], None]) -> None:
        def came_back(result: Any, error: BaseException | None) -> None:
            if error is None:
                done(result)
            elif not isinstance(error, JournalFullError):
                self.commit_failed(error)

        self._runner.submit(work, came_back)
