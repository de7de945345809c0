"""The age of stored rows: a clock that runs only while a broker is there to see it. Pure.

Retention must not believe the wall clock (a step of years would delete everything), and the boot
clock begins anew at each reboot. So each start of the broker carries an offset such that
`boot_ms + offset_ms` goes on where the last start was known to have been: time that a host spends
switched off ages nothing, and no clock that a person can set is asked.

A rejected simpler rule, "count everything as finished at the reboot", never deletes anything on a
host that reboots more often than its retention is long.
"""

from collections.abc import Mapping

import attrs

from ..proto import limits
from .journal import Start

SEEN_EVERY_MS = limits.MINUTE_MS
"""How often the boot clock is written down: a host that loses power ages its rows so much too little."""


@attrs.frozen
class Anchor:
    """A start, what its boot clock is ahead or behind of the clock of ages, and how far it came."""

    start: Start
    offset_ms: int
    seen_boot_ms: int
    """The last instant of its boot clock that was written down."""


def following(last: Anchor | None, start: Start) -> Anchor:
    """The anchor of a start that comes after `last`."""
    if last is None:
        return Anchor(start, 0, start.boot_ms)
    if last.start.boot_id == start.boot_id:
        return Anchor(start, last.offset_ms, max(start.boot_ms, last.seen_boot_ms))
    return Anchor(start, last.seen_boot_ms + last.offset_ms - start.boot_ms, start.boot_ms)


def shift_ms(anchors: Mapping[int, Anchor], row_epoch: int, current: Anchor) -> int:
    """What to add to a boot-clock instant of the start `row_epoch` to have it on the current one's clock."""
    return anchors[row_epoch].offset_ms - current.offset_ms


def seen(anchor: Anchor, boot_ms: int) -> Anchor | None:
    """The anchor to write down, if the boot clock has come far enough since the last time."""
    if boot_ms - anchor.seen_boot_ms < SEEN_EVERY_MS:
        return None
    return attrs.evolve(anchor, seen_boot_ms=boot_ms)
