"""The disk, watched: free space, the ballast, retention. Chores, each a visit to the journal thread.

Below the low-water mark, or when a commit did not fit, the storage is full: the core refuses
enqueues, and everything else goes on from what is kept back. It is over when there is room again
above the mark and the ballast is back on board, and not before it has lasted a while, so that it
does not flicker.

Retention only looks here: the core decides which rows go, and they go with an ordinary commit.
"""

import contextlib
import resource
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..proto import limits
from .core.events import Now
from .files import Ballast, free_bytes
from .journal import Journal, JournalFullError, Retention
from .log import Log

FULL_LASTS_MS = 5000
"""At least so long is the storage full once it was: a limit that `statvfs` does not show (a quota, a
file size) would otherwise be run into again and again."""


JOB_BYTES = 1024
"""What a job takes on the disk besides its payload, rounded up."""


def _bytes_below_file_limit(statistics: Mapping[str, int]) -> int:
    """What the journal may still grow by under a limit of file sizes (`ulimit -f`), if there is one.

    Folded in, its log makes it longer by at most the log's own length. Nothing helps who has come to this
    limit, the ballast neither, so enqueues must be refused before.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return limits.INTEGER_MAX
    return max(0, limit - statistics["journal_bytes"] - statistics["wal_bytes"])


PruneRow = tuple[int, str, bytes, bool, str, str, int]
"""As `events.PruneFound` has it."""


@attrs.frozen
class Survey:
    """What one visit found."""

    free_bytes: int
    has_ballast: bool
    ids_forgotten: int
    statistics: Mapping[str, int]


class Storage:
    """Watches one state directory."""

    def __init__(
        self, directory: str, ballast: Ballast, retention: Retention, low_water_bytes: int, log: Log
    ) -> None:
        self._directory = directory
        self._ballast = ballast
        self._retention = retention
        self._low_water_bytes = low_water_bytes
        self._log = log
        self._full_since: Now | None = None
        self._last: Survey | None = None
        self._taken = 0
        self._taken_when_asked = 0
        self._made_room = False
        self._had_ballast = True
        """At the last survey. Begins so, for that it is missing is worth a line."""

    @property
    def is_full(self) -> bool:
        """Enqueues are being refused."""
        return self._full_since is not None

    # --- with the journal: on its thread -------------------------------------------------------------------

    def make_room(self, journal: Journal) -> None:
        """A commit did not fit: give up what was kept back for this. On the loop, if the commit was."""
        self._made_room = True
        self._ballast.release()
        journal.checkpoint_if_due()

    def survey(self, journal: Journal, boot_ms: int) -> Survey:
        """Look at the disk, and do the small chores. JournalLostError if what is written could not be found."""
        journal.check_place()
        ids_forgotten = 0
        with contextlib.suppress(JournalFullError):
            # If it does not fit, nothing was changed, and the free bytes below say what matters.
            ids_forgotten = journal.forget_ids(boot_ms=boot_ms, limit=limits.PRUNE_ROWS)
        statistics = journal.statistics()
        return Survey(
            min(free_bytes(self._directory), _bytes_below_file_limit(statistics)),
            self._ballast.fill(spare_bytes=self._low_water_bytes),
            ids_forgotten,
            statistics,
        )

    def prunable(self, journal: Journal, boot_ms: int) -> Sequence[PruneRow]:
        """Rows whose retention is over, for the core to decide on."""
        return journal.prunable(self._retention, boot_ms=boot_ms, limit=limits.PRUNE_ROWS)

    # --- on the loop -----------------------------------------------------------------------------------

    def take(self, payload_bytes: int, now: Now) -> bool:
        """A job of that size is about to be taken in; True if that makes the storage full just now.

        A survey is a second old at most, and a second is enough to fill a disk. So what was taken in
        since counts as gone, twice: it is in the log first and in the journal later.
        """
        if self._made_room:
            # What was kept back is for acks. The next survey may be a second away, in which jobs would use it up.
            self._made_room = False
            return bool(self.became_full(now))
        self._taken += 2 * (payload_bytes + JOB_BYTES)
        if self._last is None or self._last.free_bytes - self._taken >= self._low_water_bytes:
            return False
        return bool(self.became_full(now))

    def asked(self) -> None:
        """A survey is on its way: it will have seen what was taken in before."""
        self._taken_when_asked = self._taken

    def judge(self, survey: Survey, now: Now, *, is_stuck: bool) -> bool | None:
        """Take a survey in; True or False if the storage became full or is so no longer, else None."""
        is_low = self._full_since is not None or survey.free_bytes < self._low_water_bytes
        if not survey.has_ballast and self._had_ballast and not is_low:
            # When the disk is full, that is what it was for.
            self._log.event("no_ballast", path=self._directory, free_bytes=survey.free_bytes)
        self._had_ballast = survey.has_ballast
        self._last = survey
        self._taken -= self._taken_when_asked
        self._taken_when_asked = 0
        if survey.free_bytes < self._low_water_bytes:
            return self.became_full(now)
        if self._full_since is None or is_stuck or not survey.has_ballast:
            return None
        if now.mono_ms - self._full_since.mono_ms < FULL_LASTS_MS:
            return None
        self._full_since = None
        self._made_room = False
        self._log.event("storage_has_room", free_bytes=survey.free_bytes)
        return False

    def became_full(self, now: Now) -> bool | None:
        """A commit did not fit, or free space is short; True if that is new."""
        if self._full_since is not None:
            return None
        self._full_since = now
        free = self._last.free_bytes if self._last is not None else None
        self._log.event("storage_full", burst=1, path=self._directory, free_bytes=free)
        return True

    def statistics(self) -> dict[str, Any]:
        """For `status`."""
        last = self._last
        return {
            "full": self.is_full,
            "full_since_at_ms": self._full_since.wall_ms if self._full_since is not None else None,
            "free_bytes": last.free_bytes if last is not None else None,
            "low_water_bytes": self._low_water_bytes,
            **(last.statistics if last is not None else {}),
        }
