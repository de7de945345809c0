"""How long a batch gathers, and how long it has been on its way to the disk.

**Patience.** An ack holds nobody up: its worker has been free since it was read, and only keeps the ack
until it is confirmed. So a batch of nothing else waits a moment for what will be committed anyway, the
next enqueue or lease, and shares its commit: a queue that is not busy writes half as often. Anything
that somebody waits for ends the patience at once. Within it a power cut takes acks that nobody has been
told are stored; their jobs run again, as they would after any ack that did not arrive.

**Holdup.** A batch that does not get to the disk, because it does not fit or the disk takes long over it,
holds up everything that waits for it, and none of that must age: a job in it has not left the broker. So
nothing is judged meanwhile, and once it is stored the time of what it held back counts from then. A batch
that takes less than `HELD_MS` is not worth the trouble: that much may be missing from a lease or a time
limit, and as much again for what had gathered behind another such batch.

Pure: the owner says what time it is.
"""

from .committer import Committer

PATIENCE_MS = 5
"""Several commits' worth: a sequence of enqueues by one client comes sooner than that."""

HELD_MS = 50
"""A batch that is in flight as long is held up; half the shortest lease."""


class BatchTimes:
    """See the module. All instants are monotonic milliseconds."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._patient_until_ms: int | None = None
        self._since_ms: int | None = None
        self.is_full = False
        """A batch does not fit, also while it is tried again."""
        self.is_held = False
        """A batch is known to be held up: it does not fit, or the disk takes long over it."""

    # --- patience --------------------------------------------------------------------------------------

    def may_wait(self, now_ms: int) -> bool:
        """Whether what gathers may go on gathering."""
        until_ms, self._patient_until_ms = self._patient_until_ms, None
        if not self._committer.is_patient:
            return False
        if until_ms is None:
            until_ms = now_ms + PATIENCE_MS
        if until_ms <= now_ms:
            return False
        self._patient_until_ms = until_ms
        return True

    def delay_ms(self, now_ms: int, longest_ms: int) -> int:
        """In how many milliseconds the patience is over; at most `longest_ms`."""
        if self._patient_until_ms is None:
            return longest_ms
        return min(self._patient_until_ms - now_ms, longest_ms)

    # --- holdup ----------------------------------------------------------------------------------------

    def begun(self, now_ms: int) -> None:
        """A batch was handed over; or again, the same one, after it did not fit."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def look(self, now_ms: int) -> bool:
        """Whether a batch is held up by now."""
        self.is_held = self.is_full or self._held_ms(now_ms) > 0
        return self.is_held

    def found_full(self) -> None:
        """The batch does not fit."""
        self.is_full = self.is_held = True

    def stored(self, now_ms: int) -> int:
        """It is stored: for how many milliseconds it was held up, 0 if it was not."""
        held_ms = self._held_ms(now_ms)
        self._since_ms = None
        self.is_full = self.is_held = False
        return held_ms

    def _held_ms(self, now_ms: int) -> int:
        took_ms = 0 if self._since_ms is None else now_ms - self._since_ms
        return took_ms if self.is_full or took_ms >= HELD_MS else 0
