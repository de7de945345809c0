"""The time, as the core wants it: three clocks read together, in whole milliseconds.

The only place of the broker that asks the kernel for the time of events. Which clock serves what is
said in `core.events.Now`.
"""

import time
from collections.abc import Callable

from .core.events import Now

Clock = Callable[[], Now]
"""Reads the time. Tests and simulations bring their own."""

_read = time.clock_gettime_ns
_MONOTONIC, _BOOTTIME = time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME
_NS_PER_MS = 1_000_000

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def now() -> Now:
    """The three clocks at this moment."""
    return Now(_read(_MONOTONIC) // _NS_PER_MS, _read(_BOOTTIME) // _NS_PER_MS, time.time_ns() // _NS_PER_MS)


def boot_id() -> str:
    """The kernel's name for this boot: boot-clock instants of two boots must never be compared."""
    with open(BOOT_ID_FILE, encoding="ascii") as file:
        return file.read().strip()
