"""Reloading: new code takes over from old, or is given up. At every moment somebody can take a job.

    request ─► loading ──imported──► starting ──a new worker takes jobs──► accepted ──all do──► done
                  └──────── does not import, dies, nobody comes up ────────► failed

**loading**: a second zygote imports the app, beside the first. **starting**: the broker is told the new kinds;
then, for each worker that there is, one of the new code is started. The first of these that takes jobs is
the turning point. Before it the old code has lost nothing, not even a place in which it would be started
again, and a failure leaves no more than a line in the log, a traceback, and the answer to whoever asked.
After it there is no way back: new workers that die are started again, from the new code.

An old worker is told to end when the very one that takes its place can take jobs, and then finishes what it
runs, however long that is. The old zygote lives until its last worker has ended.

A request during a reload starts over: the generation in the making is dismissed, whatever it had come to.
Should the zygote of the code that serves die meanwhile, the one in the making takes its place at once; the
code on the disk is all there is then. Whoever asked for the reload finds in `status` when the last one
began and what has become of it.
"""

import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Protocol

import trio

from ..proto import limits
from . import slots
from .flavour import Flavour
from .generation import Generation, Generations
from .pool_link import PoolRefusedError
from .report import cut
from .slots import Slot, Slots

TRIAL_DEATHS = 3
"""So many new workers that end before they came up, and the new code is given up: once may be an accident."""

START_MS = limits.MINUTE_MS
"""Start hooks have so long before nobody believes any more that a new worker will come up."""


class State(StrEnum):
    """See the module. As the broker is told."""

    NONE = ""
    LOADING = "loading"
    STARTING = "starting"
    DONE = "done"
    FAILED = "failed"


class Owner(Protocol):
    """What reloading needs of the supervisor."""

    @property
    def is_draining(self) -> bool: ...

    async def declare(self) -> None:
        """Tell the broker who this pool is now; return when it knows. PoolRefusedError if it will not."""
        ...

    def tell(self) -> None:
        """The same, without waiting."""
        ...

    def finish(self, slot: Slot) -> None:
        """Have the worker of a slot finish and end, if it has one."""
        ...

    def call_off(self, slot: Slot) -> None:
        """The same for one whose code was given up: it may hang and never have come up."""
        ...

    def has_come_up(self, generation: Generation) -> bool:
        """Whether a worker of it has entered its loop."""
        ...

    def change(self) -> None:
        """Look again at what is to be done."""
        ...

    def give_up(self) -> None:
        """There is no code to go on with."""
        ...


class Reloading:
    """See the module. `wanted` is how many workers of each flavour, and for how many jobs each."""

    def __init__(
        self,
        target: str,
        generations: Generations,
        slots: Slots,
        wanted: Mapping[Flavour, tuple[int, int]],
        owner: Owner,
        *,
        say: Callable[..., None],
        write: Callable[[bytes], None],
    ) -> None:
        self.current: Generation
        """Which new workers are forked from. Its zygote may be dead; then another is about to be started."""
        self.candidate: Generation | None = None
        """In the making. Slots on trial are its."""
        self.code = ""
        """What serves, or did last."""
        self.state = State.NONE
        """Of the last reload that was asked for."""
        self.began_ms = 0
        """When that was, on the monotonic clock, which all processes of a host share."""
        self.error = ""
        self._target = target
        self._generations = generations
        self._slots = slots
        self._wanted = wanted
        self._owner = owner
        self._say, self._write = say, write
        self._failed: Generation | None = None
        """The code that was tried last, if it was given up."""
        self._trial_deaths = 0
        self._zygote_deaths = 0
        self._died_at_ms = 0
        self._nursery: trio.Nursery

    def begin(self, nursery: trio.Nursery) -> None:
        """Import the app for the first time."""
        self._nursery = nursery
        self.current = self._generations.begin(nursery)

    def source_of(self, slot: Slot) -> Generation | None:
        """What a worker for this slot is to be forked from; None if that is not possible now."""
        generation = self.candidate if slot.is_trial else self.current
        return generation if generation is not None and generation.can_fork else None

    @property
    def declared(self) -> Generation:
        """Whose kinds the broker is told."""
        is_starting = self.candidate is not None and self.candidate.was_ready
        return self.candidate if self.candidate is not None and is_starting else self.current

    @property
    def is_waiting(self) -> bool:
        """New workers are waited for."""
        return self.state is State.STARTING or self._slots.replacing

    def watched(self) -> tuple[list[str], int]:
        """The files of the code that serves, and of that which was given up last; what is newer than they are."""
        newest = self._failed or self.current
        return [
            *self.current.files,
            *(self._failed.files if self._failed is not None else ()),
        ], newest.began_ns

    # --- what is asked, and what happens ---------------------------------------------------------------

    def request(self, why: str) -> None:
        """Load the code anew. `why` is for the log."""
        if self._owner.is_draining:
            return
        if self.candidate is not None:
            self._say("reload_superseded", generation=self.candidate.number)
            self._dismiss_candidate()
        self.state, self.began_ms, self.error = State.LOADING, time.monotonic_ns() // 1_000_000, ""
        self._trial_deaths = 0
        try:
            self.candidate = self._generations.begin(self._nursery)
        except OSError as error:
            self._fail(f"no new zygote can be started: {error}")
            return
        self._say("reload_begins", generation=self.candidate.number, why=why)

    def imported(self, generation: Generation) -> None:
        """A zygote has imported the app."""
        if generation is self.candidate:
            self._nursery.start_soon(self._try_out, generation)
        elif generation is self.current:
            self._take_over()

    def ended(self, generation: Generation) -> None:
        """A zygote has ended by itself, or its app does not import."""
        if self._owner.is_draining:
            return
        if generation is self.candidate:
            failure = generation.failure
            if failure is None:
                self._fail("the new zygote died")
            else:
                self._fail(failure.reason, failure.report)
        elif generation is self.current:
            self._lose_current(generation)

    def trial_died(self) -> None:
        """A worker on trial has ended before it came up, or could not be made."""
        self._trial_deaths += 1
        if self._trial_deaths >= TRIAL_DEATHS and self.candidate is not None:
            self._fail(f"no new worker came up: {self._trial_deaths} have ended as they started")

    def came_up(self, slot: Slot) -> None:
        """The worker of a slot takes jobs."""
        if slot.is_trial:
            self._accept()
        for old in self._slots.came_up(slot):
            self._owner.finish(old)
        self._settle()

    # --- the way to new code ---------------------------------------------------------------------------

    async def _try_out(self, generation: Generation) -> None:
        if generation is not self.candidate:
            return
        self.state = State.STARTING
        try:
            await self._owner.declare()
        except PoolRefusedError as error:
            if generation is self.candidate:
                self._fail(f"the broker does not accept its kinds: {error}")
            return
        if generation is not self.candidate or self._owner.is_draining:
            return
        if not self._slots.try_out(self._served(generation)):
            # There are none of this app, and nobody to wait for.
            self._accept()
            self._settle()
        self._owner.change()
        while generation is self.candidate:
            await trio.sleep(START_MS / 1000)
            if generation is self.candidate and not self._owner.has_come_up(generation):
                self._fail(f"no new worker came up within {START_MS // 1000} s")

    def _accept(self) -> None:
        assert self.candidate is not None
        old, self.current, self.candidate = self.current, self.candidate, None
        self.code, self._failed = self.current.code, None
        for slot in self._slots.accept():
            self._owner.finish(slot)
        self._generations.dismiss(old)

    def _settle(self) -> None:
        if self.state is State.STARTING and self.candidate is None and self._slots.all_up:
            self.state = State.DONE
            self._say("reload_done", code=self.code)
            self._owner.tell()

    def _fail(self, reason: str, report: str = "") -> None:
        self._failed = self.candidate
        self._dismiss_candidate()
        self.state, self.error = State.FAILED, cut(report.rstrip() or reason, limits.REPORT_BYTES_MAX)
        self._say("reload_failed", reason=reason, code=self.code, hint="the old code goes on serving")
        if report:
            self._write(report.rstrip().encode() + b"\n")
        self._owner.tell()

    def _dismiss_candidate(self) -> None:
        generation, self.candidate = self.candidate, None
        for slot in self._slots.reject():
            self._owner.call_off(slot)
        if generation is not None:
            self._generations.dismiss(generation)

    # --- the code that serves --------------------------------------------------------------------------

    def _take_over(self) -> None:
        """The current code can be forked from: fill all places with it."""
        self.code = self.current.code
        if not self._owner.is_draining:
            served = self._served(self.current)
            for flavour, (count, capacity) in self._wanted.items():
                self._slots.provide(flavour, count if flavour in served else 0, capacity)
        if self.state is State.LOADING:
            self.state = State.STARTING
        self._owner.tell()
        self._owner.change()

    def _served(self, generation: Generation) -> Mapping[Flavour, tuple[int, int]]:
        # An app without any handler has workers all the same: `status` shows that the pool is there.
        flavours: Collection[str] = generation.flavours or (Flavour.PLAIN,)
        return {flavour: wanted for flavour, wanted in self._wanted.items() if flavour in flavours}

    def _lose_current(self, generation: Generation) -> None:
        if generation.failure is not None:
            self._say("app_does_not_import", app=self._target, reason=generation.failure.reason)
            self._write(generation.failure.report.encode() + b"\n")
        if self.candidate is not None:
            self._promote()
        elif generation.was_ready or (self.code and generation.failure is None):
            # Also one that was killed as it imported: the same code has been imported before.
            self._nursery.start_soon(self._start_again, generation)
        else:
            self._owner.give_up()

    def _promote(self) -> None:
        """The code in the making is all there is."""
        assert self.candidate is not None
        self.current, self.candidate = self.candidate, None
        for slot in self._slots.accept():
            self._owner.finish(slot)
        if self.current.can_fork:
            self._take_over()

    async def _start_again(self, lost: Generation) -> None:
        now_ms = round(trio.current_time() * 1000)
        recently = now_ms - self._died_at_ms <= slots.HEALTHY_MS
        self._zygote_deaths = self._zygote_deaths + 1 if recently else 1
        self._died_at_ms = now_ms
        await trio.sleep(slots.delay_ms(self._zygote_deaths) / 1000)
        if self._owner.is_draining or self.current is not lost:
            return
        if self.candidate is not None:
            self._promote()
            return
        try:
            self.current = self._generations.begin(self._nursery)
        except OSError as error:
            self._say("no_zygote", error=error)
            self._nursery.start_soon(self._start_again, lost)
