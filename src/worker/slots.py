"""Slots: how many workers there shall be, which there are, and when a new one may be started. Pure.

A slot is a place for one worker process. What is wanted of it (`wanted`: a worker, or none) stands
beside what it is (`state`); whoever drives this compares the two and acts, then says what happened.

    gone      no process; started when one is wanted and `not_before_ms` has come
    starting  a fork was asked for; nothing has been seen of it yet
    idle      the worker's loop runs and its start page is empty
    busy      its start page names an attempt
    quiet     it was told to finish and end (TERM), and has not ended yet
    stopping  it was sent SIGKILL, and has not been reaped yet

    gone -started-> starting -observed-> idle <-observed-> busy
    any of these -quieted-> quiet -stopped-> stopping,  any but gone -exited-> gone

idle and busy are what the start page said when it was last looked at. No decision depends on the
difference; it is for people.

Crash loops. A worker that ends unasked is replaced at once the first time; from the second time on its
slot waits 1 s, doubling to 30 s. A worker that lived for a minute or finished a job was a healthy one:
after it the count starts anew. More than 5 deaths of one slot within a minute (healthy ones left out),
or of workers anywhere in the pool that never came up, are a crash loop: then the slot waits the full
30 s, and each further death repeats the alarm.
"""

from collections import deque
from collections.abc import Iterator
from enum import StrEnum

from ..proto import limits

BACKOFF_MS = 1 * limits.SECOND_MS
BACKOFF_CAP_MS = 30 * limits.SECOND_MS
HEALTHY_MS = limits.MINUTE_MS
LOOP_DEATHS = 5
LOOP_MS = limits.MINUTE_MS


class SlotState(StrEnum):
    """See the module."""

    GONE = "gone"
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    QUIET = "quiet"
    STOPPING = "stopping"


class Deaths:
    """When the last few deaths were."""

    def __init__(self) -> None:
        self._at_ms: deque[int] = deque(maxlen=LOOP_DEATHS + 1)

    def add(self, now_ms: int) -> bool:
        """Count one; True if there are now too many within LOOP_MS."""
        self._at_ms.append(now_ms)
        return len(self._at_ms) > LOOP_DEATHS and now_ms - self._at_ms[0] < LOOP_MS


class Slot:
    """One place for a worker."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.wanted = True
        self.state = SlotState.GONE
        self.nonce = ""
        self.started_at_ms = 0
        self.not_before_ms = 0
        self.deaths_in_a_row = 0
        self.deaths = Deaths()


class Slots:
    """All slots of a pool. Methods that need the time are given it, in monotonic milliseconds."""

    def __init__(self, count: int) -> None:
        self._slots = [Slot(index) for index in range(count)]
        self._stillborn = Deaths()

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __getitem__(self, index: int) -> Slot:
        return self._slots[index]

    def due(self, now_ms: int) -> list[Slot]:
        """Slots in which a worker is to be started now."""
        return [slot for slot in self._waiting() if slot.not_before_ms <= now_ms]

    def next_due_ms(self) -> int | None:
        """When the next one is; None if no slot waits."""
        return min((slot.not_before_ms for slot in self._waiting()), default=None)

    def _waiting(self) -> Iterator[Slot]:
        return (slot for slot in self._slots if slot.wanted and slot.state is SlotState.GONE)

    # --- what happened ---------------------------------------------------------------------------------

    def started(self, slot: Slot, nonce: str, now_ms: int) -> None:
        """A fork was asked for."""
        assert slot.state is SlotState.GONE, slot.state
        slot.state, slot.nonce, slot.started_at_ms = SlotState.STARTING, nonce, now_ms

    def observed(self, slot: Slot, *, came_up: bool, busy: bool) -> None:
        """What its start page said just now."""
        if slot.state in (SlotState.STARTING, SlotState.IDLE, SlotState.BUSY) and came_up:
            slot.state = SlotState.BUSY if busy else SlotState.IDLE

    def quieted(self, slot: Slot) -> None:
        """Its worker was told to finish and end."""
        if slot.state not in (SlotState.GONE, SlotState.STOPPING):
            slot.state = SlotState.QUIET

    def stopped(self, slot: Slot) -> None:
        """Its worker was sent SIGKILL."""
        if slot.state is not SlotState.GONE:
            slot.state = SlotState.STOPPING

    def exited(self, slot: Slot, now_ms: int, *, came_up: bool, finished: bool, blameless: bool) -> bool:
        """Its worker has ended; True if this is a crash loop, of which people must hear.

        `finished`: it had finished a job. `blameless`: it was told to end, killed for its job's sake,
        or died with its zygote, so its end says nothing about whether the next one would live.
        """
        slot.state, slot.nonce = SlotState.GONE, ""
        if blameless:
            slot.not_before_ms = now_ms
            return False
        if finished or (came_up and now_ms - slot.started_at_ms >= HEALTHY_MS):
            slot.deaths_in_a_row = 1
            slot.not_before_ms = now_ms
            return False
        slot.deaths_in_a_row += 1
        looping = slot.deaths.add(now_ms)
        if not came_up:
            looping = self._stillborn.add(now_ms) or looping
        slot.not_before_ms = now_ms + (BACKOFF_CAP_MS if looping else delay_ms(slot.deaths_in_a_row))
        return looping


def delay_ms(deaths_in_a_row: int) -> int:
    """How long after the nth death in a row the next start has to wait."""
    if deaths_in_a_row <= 1:
        return 0
    # The exponent is bounded before it is used: a slot may die for months.
    return min(BACKOFF_MS << min(deaths_in_a_row - 2, 16), BACKOFF_CAP_MS)
