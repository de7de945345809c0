"""Chores: what the broker does by the clock and not because anybody asked.

Each chore has its own time, and says when it wants to be called again. Those that touch the disk are
visits to the journal thread, one at a time, so a slow disk delays chores and not the loop.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..proto import limits
from .committer import Committer
from .core.events import IdsForgotten, Now, OwnerGone, PruneFound, StorageChanged
from .core.step import Core
from .journal import Journal, JournalFullError
from .log import Log
from .minutes import Minutes
from .notify import Notifier
from .owners import Owners
from .questions import Questions
from .storage import PruneRow, Storage, Survey
from .thread import LoopRunner

T = TypeVar("T")

TICK_MS = limits.SECOND_MS
"""The watchdog, and everything that has nothing to do at the moment."""

OWNERS_MS = 200
"""How often absent holders of leases are looked for, while there are any."""

SURVEY_MS = limits.SECOND_MS
PRUNE_MS = limits.SECOND_MS
CHECKPOINT_MS = 20
"""So long after a commit the log is looked at, and folded into the journal if it has grown."""

RETRY_MS = 250
"""How often a batch that does not fit on the disk is tried again."""


class Chores:
    """See the module. `step` and the driver's other parts are handed in."""

    def __init__(
        self,
        core: Core,
        step: Callable[[IdsForgotten | OwnerGone | PruneFound | StorageChanged], None],
        runner: LoopRunner,
        committer: Committer,
        questions: Questions,
        storage: Storage,
        owners: Owners,
        notifier: Notifier,
        log: Log,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._step = step
        self._runner = runner
        self._committer = committer
        self._questions = questions
        self._storage = storage
        self._owners = owners
        self._notifier = notifier
        self._log = log
        self._failed = failed
        self._now = Now(0, 0, 0)
        self._due: dict[Callable[[], int], int] = {
            self._tick: 0,
            self._say_figures: 0,
            self._look_for_owners: 0,
            self._survey: 0,
            self._prune: 0,
            self._checkpoint: 0,
            self._retry: 0,
        }
        self._minutes = Minutes(log)
        self._visiting = False
        self._is_put_off = False
        """A checkpoint waits for the end of the visit that is out."""
        self._pruning = False
        self._seen = 0

    def pass_time(self, now: Now) -> int:
        """Do what is due; in how many milliseconds something will be."""
        self._now = now
        if self._runner.submitted != self._seen:
            # Something was written: soon after, the log may be due.
            soon_ms = now.mono_ms + CHECKPOINT_MS
            self._due[self._checkpoint] = min(self._due[self._checkpoint], soon_ms)
        for chore, due_ms in self._due.items():
            if due_ms <= now.mono_ms:
                self._due[chore] = now.mono_ms + chore()
        return max(min(self._due.values()) - now.mono_ms, 0)

    # --- by the second -----------------------------------------------------------------------------------

    def _tick(self) -> int:
        if self._notifier.watchdog_ms:
            self._notifier.send("WATCHDOG=1")
            return min(TICK_MS, self._notifier.watchdog_ms)
        return TICK_MS

    def _say_figures(self) -> int:
        """Once a minute, how each queue stands. The first time is only to see when that is."""
        if self._minutes.has_begun(self._now.wall_ms):
            self._minutes.say(self._core.take_figures(self._now))
        return self._minutes.left_ms(self._now.wall_ms)

    def _look_for_owners(self) -> int:
        """Lease holders and supervisors that are not connected: whoever is proved dead is not waited for."""
        absent = self._core.absent_owners()
        for owner in absent:
            if self._owners.is_proved_dead(owner):
                self._step(OwnerGone(owner, self._owners.is_of_another_boot(owner)))
        return OWNERS_MS if absent else TICK_MS

    # --- the disk ------------------------------------------------------------------------------------------

    def _retry(self) -> int:
        self._committer.retry()
        return RETRY_MS

    def _checkpoint(self) -> int:
        # Not asked again and again while a disk does not answer: the end of the visit is enough.
        self._is_put_off = self._visiting
        if not self._visiting:
            self._look_at_log()
        return TICK_MS

    def _look_at_log(self) -> None:
        if self._runner.submitted != self._seen:
            self._visit(lambda journal: journal.checkpoint_if_due(), lambda _: None)
            self._seen = self._runner.submitted

    def _survey(self) -> int:
        if not self._visiting:
            boot_ms = self._now.boot_ms
            self._storage.asked()
            self._visit(lambda journal: self._storage.survey(journal, boot_ms), self._surveyed)
        return SURVEY_MS

    def _surveyed(self, survey: Survey) -> None:
        changed = self._storage.judge(survey, self._now, is_stuck=self._committer.is_stuck)
        if changed is not None:
            self._step(StorageChanged(changed))
        if survey.ids_forgotten:
            self._step(IdsForgotten(survey.ids_forgotten))

    def _prune(self) -> int:
        """Look for rows whose retention is over, behind everything decided so far."""
        if not self._pruning:
            self._pruning = True
            asked_at, boot_ms = self._questions.opened(), self._now.boot_ms
            self._committer.look(
                lambda journal: self._storage.prunable(journal, boot_ms),
                lambda rows: self._prune_found(rows, asked_at),
            )
        return PRUNE_MS

    def _prune_found(self, rows: Sequence[PruneRow], asked_at: int) -> None:
        self._pruning = False
        if rows:
            self._step(PruneFound(rows, asked_at))
        if len(rows) >= limits.PRUNE_ROWS:
            self._due[self._prune] = self._now.mono_ms
        self._questions.closed(asked_at)

    def _visit(self, work: Callable[[Journal], T], done: Callable[[T], None]) -> None:
        """One visit to the journal thread; no other chore makes one before it is over."""
        self._visiting = True

        def came_back(result: T, error: BaseException | None) -> None:
            self._visiting = False
            if error is None:
                done(result)
            elif isinstance(error, JournalFullError | OSError):
                # No room on the disk, or no descriptor left: the chore comes round again.
                self._log.event("chore_put_off", burst=1, error=error)
            else:
                self._failed(error)
                return
            if self._is_put_off:
                self._is_put_off = False
                self._look_at_log()

        self._runner.submit(work, came_back)
