"""The start page: a little shared memory in which a worker says what it runs, and is told to stop it.

One anonymous file a worker, made by the supervisor before the fork and mapped by both. It outlives
the worker, so whatever ended it, the supervisor can read which attempt was running; and it needs no
system call, so saying so costs nothing. It names attempts by token only.

Words of 8 bytes:

    0       the worker came up: it entered its loop (written by the worker)
    1       jobs finished (worker)
    2, 3    entry of slot 0, what runs: counter, epoch + 1 (worker)
    4, 5    kill entry of slot 0: counter, epoch + 1 (supervisor)
    6       reason of the kill entry (supervisor)
    8 ...   slot 1, and so on: 6 words a slot, of which the last is spare

Every store is one aligned 8-byte store, which the processor does not tear. An entry has two words,
so their order matters. Epoch + 1 is zero when there is no entry; it is the *last* word written when
an entry is made, and the first one cleared. A reader takes epoch, counter, epoch again, and starts
over if the epoch changed. So it never sees the epoch of one attempt with the counter of another: in
between the epoch was zero. The reason of a kill is written before both. Between processor cores the
order holds on x86; elsewhere the system calls that end a process or deliver a signal order it.

One writer for each word, always: there is no lock, and a dead writer leaves nothing locked.
"""

import mmap
import os

SLOT_WORDS = 6
_HEADER_WORDS = 2
_CAME_UP, _FINISHED = 0, 1
_RUNS, _KILL, _REASON = 0, 2, 4

KILL_REASONS = ("timeout", "cancelled", "lost")

Token = tuple[int, int]


class StartPage:
    """One page, in the supervisor or in its worker. See the module for who writes what."""

    def __init__(self, fd: int, slots: int = 1) -> None:
        """Map an existing page. The descriptor is not needed afterwards, and is not closed here."""
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

    def start(self, slot: int, token: Token) -> None:
        """Say that an attempt is about to run, before anything of it does."""
        self._store(_entry(slot) + _RUNS, token)

    def clear(self, slot: int) -> None:
        """Say that nothing of the attempt runs any more."""
        self._words[_entry(slot) + _RUNS + 1] = 0

    def count_finished(self) -> None:
        self._words[_FINISHED] += 1

    def kill_reason(self, slot: int, token: Token) -> str | None:
        """Why this attempt shall end; None if it may run. Entries for other attempts mean nothing."""
        at = _entry(slot)
        if self._load(at + _KILL) != token:
            return None
        return KILL_REASONS[self._words[at + _REASON]]

    # --- the supervisor's ----------------------------------------------------------------------------

    @property
    def came_up(self) -> bool:
        return bool(self._words[_CAME_UP])

    @property
    def finished_count(self) -> int:
        return self._words[_FINISHED]

    def token(self, slot: int) -> Token | None:
        """What runs there, or ran there when the worker ended; None between jobs."""
        return self._load(_entry(slot) + _RUNS)

    def kill(self, slot: int, token: Token, reason: str) -> None:
        """Say that an attempt shall end, before its worker is told to look."""
        at = _entry(slot)
        self._words[at + _KILL + 1] = 0
        self._words[at + _REASON] = KILL_REASONS.index(reason)
        self._store(at + _KILL, token)

    # --- both ------------------------------------------------------------------------------------------

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
    return 8 * (_HEADER_WORDS + slots * SLOT_WORDS)
