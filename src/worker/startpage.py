"""The start page: a little shared memory in which a worker says what it runs, and is told to stop it.

One anonymous file a worker, made by the supervisor before the fork and mapped by both. It outlives
the worker, so whatever ended it, the supervisor can read which attempt was running; and it needs no
system call, so saying so costs nothing. It names attempts by token only.

Words of 8 bytes:

    0       1: the worker came up, its loop runs; 2: the broker has welcomed it once, so it has been able
            to take jobs (written by the worker)
    1       jobs finished (worker)
    2, 3    recall entry: nothing up to this token may begin: counter, epoch + 1 (supervisor)
    4, 5    entry of slot 0, what runs: counter, epoch + 1 (worker)
    6, 7    kill entry of slot 0: counter, epoch + 1 (supervisor)
    8       reason of the kill entry, and above its lowest 8 bits for how many ms it may take (supervisor)
    9       memory mark of slot 0: a death by signal with a peak of so many bytes is the limit's (worker)
    10      beat entry of slot 0: by when it must beat again, see below (worker)
    11 ...  slot 1, and so on: 7 words a slot
    ...     of a page with one slot, 2 words each: entries of attempts that are over, and whose ends the broker
            has not confirmed, while the next one runs (worker)

Every store is one aligned 8-byte store, which the processor does not tear. An entry has two words,
so their order matters. Epoch + 1 is zero when there is no entry; it is the *last* word written when
an entry is made, and the first one cleared. A reader takes epoch, counter, epoch again, and starts
over if the epoch changed. So it never sees the epoch of one attempt with the counter of another: in
between the epoch was zero. The reason of a kill is written before both. Between processor cores the
order holds on x86; elsewhere the system calls that end a process or deliver a signal order it.

Where there are several slots, a kill entry belongs to no slot: the supervisor takes them in turn, and the
worker looks at all of them when it is told to. It may be for an attempt that has not begun.

A beat entry is one word: an instant of the monotonic clock in milliseconds, which all processes of a
host share, and below it the lowest bits of the counter of the attempt that it is about. So a thread
that an attempt has left behind can write what it likes: it is not about the next attempt.

A recall and a start that come together: the worker writes what runs and then looks at the recall, the supervisor
writes the recall and then looks at what runs, so one of them at least sees the other, if no processor puts its
look before its own write. A worker cannot afford what prevents that; the supervisor can, for both: `process.fence`
makes every processor that runs a worker finish its writes. If both see the other, the job counts as begun, and the
worker gives it back.

One writer for each word, always: there is no lock, and a dead writer leaves nothing locked.
"""

import mmap
import os
from collections.abc import Iterator

from ..proto import limits

SLOT_WORDS = 7
_HEADER_WORDS = 4
_CAME_UP, _FINISHED, _RECALL = 0, 1, 2
_RUNS, _KILL, _REASON, _MEMORY, _BEAT = 0, 2, 4, 5, 6

_COUNTER_BITS = 20
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
"""Of a beat entry. What is left for the instant are five centuries."""

_REASON_BITS = 8
_REASON_MASK = (1 << _REASON_BITS) - 1

KILL_REASONS = ("timeout", "cancelled", "lost", "silent")
"""The last is the supervisor's own: an attempt did not beat in the time it had named."""

OVER_MAX = limits.PREFETCH_MAX + 1
"""The broker hands out no more before it has read the end of one of them, and confirms it before the next comes."""

Token = tuple[int, int]


class StartPage:
    """One page, in the supervisor or in its worker. See the module for who writes what."""

    def __init__(self, fd: int, slots: int = 1) -> None:
        """Map an existing page. The descriptor is not needed afterwards, and is not closed here."""
        self.slots = slots
        size = _size(slots)
        self._map = mmap.mmap(fd, size)
        self._words = memoryview(self._map).cast("Q")

    def close(self) -> None:
        """Unmap it. It is not used again."""
        self._words.release()
        self._map.close()

    # --- the worker's ------------------------------------------------------------------------------

    def say_came_up(self) -> None:
        self._words[_CAME_UP] = 1

    def say_welcomed(self) -> None:
        self._words[_CAME_UP] = 2

    def start(self, slot: int, token: Token) -> None:
        """Say that an attempt is about to run, before anything of it does."""
        self._store(_entry(slot) + _RUNS, token)

    def clear(self, slot: int) -> None:
        """Say that nothing of the attempt runs any more."""
        self._words[_entry(slot) + _RUNS + 1] = 0

    def keep_over(self, index: int, token: Token) -> None:
        """Say that an attempt is over and unconfirmed, before the next one takes its place. The index is below `OVER_MAX`."""
        self._store(self._over(index), token)

    def drop_over(self, index: int) -> None:
        """Say that it is confirmed."""
        self._words[self._over(index) + 1] = 0

    def is_recalled(self, token: Token) -> bool:
        """Whether this attempt may not begin. To be asked after `start`."""
        through = self._load(_RECALL)
        return through is not None and token <= through

    def count_finished(self) -> None:
        self._words[_FINISHED] += 1

    def mark_memory(self, slot: int, peak_bytes: int) -> None:
        """Say from which peak on a death by signal is that of the memory limit; 0 for never."""
        self._words[_entry(slot) + _MEMORY] = peak_bytes

    def beat_by(self, slot: int, token: Token, by_ms: int) -> None:
        """Say by when this attempt will beat again, or be ended; 0 takes that back."""
        self._words[_entry(slot) + _BEAT] = by_ms << _COUNTER_BITS | token[1] & _COUNTER_MASK if by_ms else 0

    def kill_reason(self, slot: int, token: Token) -> str | None:
        """Why this attempt shall end; None if it may run. Entries for other attempts mean nothing."""
        at = _entry(slot)
        if self._load(at + _KILL) != token:
            return None
        return KILL_REASONS[self._words[at + _REASON] & _REASON_MASK]

    def kills(self) -> Iterator[tuple[Token, str, int]]:
        """Every kill entry: the attempt that shall end, why, and in how many ms. Most are of attempts long over."""
        for slot in range(self.slots):
            at = _entry(slot)
            token = self._load(at + _KILL)
            if token is not None:
                word = self._words[at + _REASON]
                yield token, KILL_REASONS[word & _REASON_MASK], word >> _REASON_BITS

    # --- the supervisor's ----------------------------------------------------------------------------

    @property
    def came_up(self) -> bool:
        return bool(self._words[_CAME_UP])

    @property
    def was_welcomed(self) -> bool:
        return self._words[_CAME_UP] == 2

    @property
    def finished_count(self) -> int:
        return self._words[_FINISHED]

    def token(self, slot: int) -> Token | None:
        """What runs there, or ran there when the worker ended; None between jobs."""
        return self._load(_entry(slot) + _RUNS)

    def tokens(self) -> list[Token]:
        """What runs in all slots."""
        found = (self.token(slot) for slot in range(self.slots))
        return [token for token in found if token is not None]

    def unconfirmed(self) -> list[Token]:
        """What is over, and of which the broker may not know, in any order, and then what runs; no token twice."""
        count = OVER_MAX if self.slots == 1 else 0
        over = (self._load(self._over(index)) for index in range(count))
        return list(dict.fromkeys([*(token for token in over if token is not None), *self.tokens()]))

    def recall(self, through: Token) -> None:
        """Say that nothing up to this token may begin any more; what had begun is to be looked at after a fence."""
        self._store(_RECALL, through)

    def silent(self, now_ms: int) -> Iterator[Token]:
        """The attempts that should have beaten before now."""
        for slot in range(self.slots):
            entry, token = self._words[_entry(slot) + _BEAT], self.token(slot)
            if token is None or not entry or entry >> _COUNTER_BITS >= now_ms:
                continue
            if entry & _COUNTER_MASK == token[1] & _COUNTER_MASK:
                yield token

    def kill(self, slot: int, token: Token, reason: str, within_ms: int) -> None:
        """Say that an attempt shall end, before its worker is told to look. After so long that is killed."""
        at = _entry(slot)
        self._words[at + _KILL + 1] = 0
        self._words[at + _REASON] = within_ms << _REASON_BITS | KILL_REASONS.index(reason)
        self._store(at + _KILL, token)

    def memory_mark(self, slot: int) -> int:
        """What the worker marked last."""
        return self._words[_entry(slot) + _MEMORY]

    # --- both ------------------------------------------------------------------------------------------

    def _over(self, index: int) -> int:
        return _entry(self.slots) + 2 * index

    def _store(self, at: int, token: Token) -> None:
        words = self._words
        words[at + 1] = 0
        words[at] = token[1]
        words[at + 1] = token[0] + 1

    def _load(self, at: int) -> Token | None:
        words = self._words
        while True:
            epoch = words[at + 1]
            counter = words[at]
            if words[at + 1] == epoch:
                return (epoch - 1, counter) if epoch else None


def create(slots: int = 1) -> int:
    """Descriptor of a new, empty page, closed on exec. The caller owns it."""
    fd = os.memfd_create("stoker-start-page", os.MFD_CLOEXEC)
    os.ftruncate(fd, _size(slots))
    return fd


def _entry(slot: int) -> int:
    return _HEADER_WORDS + slot * SLOT_WORDS


def _size(slots: int) -> int:
    return 8 * (_entry(slots) + (2 * OVER_MAX if slots == 1 else 0))
