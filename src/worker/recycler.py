"""Has worn workers replaced: what `recycling` says is due, one at a time.

The next one only when the fresh one takes jobs. And a place is not up again while the worker that had it
before still finishes a job, so that jobs which run for hours do not make workers pile up. While new code is
coming in nothing is done: that replaces all of them.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial

import trio

from . import process
from .brood import Child
from .recycling import Recycling, Wear
from .reloading import Reloading
from .slots import Slot, Slots


class Recycler:
    """See the module."""

    def __init__(
        self, recycling: Recycling, slots: Slots, reloading: Reloading, say: Callable[..., None]
    ) -> None:
        self._recycling = recycling
        self._slots = slots
        self._reloading = reloading
        self._say = say
        self._worn: dict[Slot, Child] = {}
        """Those that were replaced and have not ended, by the slot of the one that did it."""

    def wear(self) -> Wear:
        """Of a worker that is being made now."""
        return Wear(self._recycling, _now_ms(), random.random())

    async def look(self, children: Iterable[Child]) -> bool:
        """Whether one has been found that is to be replaced."""
        if not any(self._recycling):
            return False
        self._worn = {slot: child for slot, child in self._worn.items() if not child.is_closed}
        for child in list(children):
            if self._may_replace(child) and (reason := await self._why(child)) and self._may_replace(child):
                self._say("worker_recycled", pid=child.pid, after=reason)
                self._worn[self._slots.recycle(child.slot)] = child
                return True
        return False

    def _may_replace(self, child: Child) -> bool:
        if self._reloading.is_waiting or child.slot in self._worn:
            return False
        # Not wanted any more: the pool is ending.
        return not child.is_closed and child.slot.is_place and child.slot.wanted and child.page.was_welcomed

    async def _why(self, child: Child) -> str:
        now_ms, wear = _now_ms(), child.wear
        reason = wear.due(now_ms, child.page.finished_count)
        if not reason and wear.may_be_large(now_ms, partial(process.resident_bytes, child.pid)):
            reason = wear.due_by_memory(await trio.to_thread.run_sync(process.private_bytes, child.pid))
        return reason


def _now_ms() -> int:
    return round(trio.current_time() * 1000)
