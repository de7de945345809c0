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
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from ..proto import limits
from .flavour import Flavour

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

    def __init__(self, index: int, flavour: Flavour, capacity: int) -> None:
        self.index = index
        self.flavour = flavour
        self.capacity = capacity
        """How many jobs its worker runs at once."""
        self.wanted = True
        self.is_leaving = False
        """Its place is another's."""
        self.is_trial = False
        """For code that has yet to show that its workers come up."""
        self.is_up = False
        """Its worker has been able to take jobs."""
        self.replaces: list[Slot] = []
        """Those whose workers are told to end when this one's takes jobs."""
        self.state = SlotState.GONE
        self.nonce = ""
        self.started_at_ms = 0
        self.not_before_ms = 0
        self.deaths_in_a_row = 0
        self.deaths = Deaths()

    def is_due(self, now_ms: int) -> bool:
        """A worker is to be started in it now."""
        return self.wanted and self.state is SlotState.GONE and self.not_before_ms <= now_ms

    @property
    def is_place(self) -> bool:
        """It counts among those that there shall be."""
        return not (self.is_leaving or self.is_trial)


class Slots:
    """All slots of a pool. Methods that need the time are given it, in monotonic milliseconds."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        self._places = 0
        self._stillborn = Deaths()

    def provide(self, flavour: Flavour, count: int, capacity: int = 1) -> None:
        """From now on there shall be so many workers of a flavour, for `capacity` jobs at once each."""
        present = [slot for slot in self._slots if slot.flavour is flavour and slot.is_place]
        for index, slot in enumerate(present):
            slot.wanted = index < count
        for _ in range(count - len(present)):
            self._add(flavour, capacity)

    def _add(self, flavour: Flavour, capacity: int, replaced: Slot | None = None) -> Slot:
        if replaced is None:
            self._places += 1
        slot = Slot(self._places - 1 if replaced is None else replaced.index, flavour, capacity)
        slot.replaces = [] if replaced is None else [replaced]
        self._slots.append(slot)
        return slot

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def __getitem__(self, index: int) -> Slot:
        return self._slots[index]

    def due(self, now_ms: int, may: Callable[[Slot], bool] = lambda _: True) -> list[Slot]:
        """Slots in which a worker is to be started now, of those in which one `may` be."""
        return [slot for slot in self._waiting(may) if slot.is_due(now_ms)]

    def next_due_ms(self, may: Callable[[Slot], bool] = lambda _: True) -> int | None:
        """When the next one is; None if no slot waits."""
        return min((slot.not_before_ms for slot in self._waiting(may)), default=None)

    def _waiting(self, may: Callable[[Slot], bool]) -> Iterator[Slot]:
        return (s for s in self._slots if s.wanted and s.state is SlotState.GONE and may(s))

    # --- replacement -----------------------------------------------------------------------------------

    @property
    def replacing(self) -> bool:
        """Some worker is yet to take the place of another."""
        return any(slot.replaces or slot.is_trial for slot in self._slots)

    @property
    def all_up(self) -> bool:
        """In every place is a worker that has been able to take jobs."""
        return all(slot.is_up for slot in self._slots if slot.wanted)

    def recycle(self, slot: Slot) -> Slot:
        """Have the worker of a slot replaced by another of the same code; the slot of that."""
        heir = self._add(slot.flavour, slot.capacity, slot)
        self._leave(slot)
        return heir

    def try_out(self, wanted: Mapping[Flavour, tuple[int, int]]) -> bool:
        """Make slots on trial, for so many workers and so many jobs each; False if there are none."""
        for flavour, (count, capacity) in wanted.items():
            places = [slot for slot in self._slots if slot.wanted and slot.flavour is flavour]
            for index in range(count):
                place = places[index] if index < len(places) else None
                self._add(flavour, capacity, place).is_trial = True
        return any(slot.is_trial for slot in self._slots)

    def accept(self) -> list[Slot]:
        """The trial has shown enough: its slots are the places now. Those that nobody replaces are over."""
        trials = [slot for slot in self._slots if slot.is_trial]
        replaced = [old for slot in trials for old in slot.replaces]
        others = [slot for slot in self._slots if slot.wanted and not slot.is_trial]
        for slot in trials:
            slot.is_trial = False
        for slot in others:
            self._leave(slot)
        over = [slot for slot in others if slot not in replaced]
        return [each for slot in over for each in (slot, *self._replaced_by(slot))]

    def reject(self) -> list[Slot]:
        """Give the trial up; its slots, whose workers are to be ended."""
        trials = [slot for slot in self._slots if slot.is_trial]
        for slot in trials:
            slot.is_trial, slot.replaces = False, []
            self._leave(slot)
        return trials

    def came_up(self, slot: Slot) -> list[Slot]:
        """The worker of a slot takes jobs; those whose workers are to be told to end now."""
        slot.is_up = True
        return self._replaced_by(slot)

    def _replaced_by(self, slot: Slot) -> list[Slot]:
        over, slot.replaces = slot.replaces, []
        # One that is replaced before it came up itself stood for another, whose time is over as well.
        return [each for old in over for each in (old, *self._replaced_by(old))]

    def _leave(self, slot: Slot) -> None:
        slot.wanted, slot.is_leaving = False, True
        if slot.state is SlotState.GONE:
            self._slots.remove(slot)

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
        slot.state, slot.nonce, slot.is_up = SlotState.GONE, "", False
        if slot.is_leaving:
            self._slots.remove(slot)
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
