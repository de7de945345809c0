"""Job ids made by the library: UUIDs of version 7 (RFC 9562) as canonical text.

The first 48 bits are the time in milliseconds, so ids sort by age; the rest is random. Within one
process every id is greater than the one before, also when the clock stands still or goes back.

No lock: uniqueness rests on fresh random bytes in every id, never on the state kept here. Two
threads (or a parent and its forked child) that start from the same `_last` still part company.
"""

import os
import time
from collections.abc import Callable

_TAIL_BITS = 74
"""Random bits: the 12 of `rand_a` and the 62 of `rand_b`."""

_STEP_BYTES = 7
"""Width of a random step within one millisecond: 2**17 ids fit before the time part moves on."""


class IdMaker:
    """Makes ids; `uuid7` is the one everybody uses, others are for tests."""

    __slots__ = ("_last", "_now_ns", "_random")

    def __init__(
        self, now_ns: Callable[[], int] = time.time_ns, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._now_ns = now_ns
        self._random = random
        self._last = 0

    def __call__(self) -> str:
        """A new id, 36 characters of lower-case hex and hyphens."""
        # The top bit of the tail stays clear, so that steps have room before they carry over.
        tail = int.from_bytes(self._random(10), "big") >> (80 - _TAIL_BITS + 1)
        value = (self._now_ns() // 1_000_000) << _TAIL_BITS | tail
        if value <= self._last:
            value = self._last + 1 + int.from_bytes(self._random(_STEP_BYTES), "big")
        self._last = value
        return _canonical(value)


def _canonical(value: int) -> str:
    millis, rand_a, rand_b = value >> 74, value >> 62 & 0xFFF, value & (1 << 62) - 1
    text = f"{millis & 0xFFFF_FFFF_FFFF:012x}7{rand_a:03x}{1 << 63 | rand_b:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


uuid7 = IdMaker()
"""`uuid7()` gives a new id. One maker a process keeps the order."""
