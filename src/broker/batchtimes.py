"""How long a batch gathers, and how long it has been on its way to the disk.

**Patience.** An ack holds nobody up: its worker has been free since it was read, and only keeps the ack
until it is confirmed. So a batch of nothing else waits a moment for what will be committed anyway, the
next enqueue or lease, and shares its commit: a queue that is not busy writes half as often. Anything
that somebody waits for ends the patience at once. Within it a power cut takes acks that nobody has been
told are stored; their jobs run again, as they would after any ack that did not arrive.

**Holdup.** A batch that does not get to the disk holds up everything that waits for it, and none of that
must age: a job in it has not left the broker. It is held up from the moment it was handed over, or found
not to fit, until it is stored.

Pure: the owner says what time it is.
"""

from .committer import Committer

PATIENCE_MS = 5
"""Several commits' worth: a sequence of enqueues by one client comes sooner than that."""

HELD_MS = 50
"""A batch that is longer in flight holds up what time would do to leases; half the shortest lease."""


class BatchTimes:
    """See the module. All instants are monotonic milliseconds."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._patient_until_ms: int | None = None
        self._held_since_ms: int | None = None
        self._batch = 0
        self._batch_since_ms = 0

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

    @property
    def is_held(self) -> bool:
        """A batch is known not to get to the disk: it does not fit, also while it is tried again, or the
        disk takes long over it."""
        return self._held_since_ms is not None

    def watch(self, now_ms: int) -> None:
        """Note when the batch in flight was handed over."""
        if self._committer.handed_over != self._batch:
            self._batch, self._batch_since_ms = self._committer.handed_over, now_ms

    def look(self, now_ms: int) -> bool:
        """Whether a batch is held up by now."""
        takes_long = now_ms - self._batch_since_ms >= HELD_MS
        if self._held_since_ms is None and self._committer.is_in_flight and takes_long:
            self._held_since_ms = self._batch_since_ms
            self._committer.report_stored()
        return self._held_since_ms is not None

    def found_full(self, now_ms: int) -> None:
        """The batch does not fit."""
        if self._held_since_ms is None:
            self._held_since_ms = now_ms

    def stored(self, now_ms: int) -> int:
        """It has been stored after all: how long it was held up."""
        assert self._held_since_ms is not None
        held_ms = now_ms - self._held_since_ms
        self._held_since_ms = None
        return held_ms
