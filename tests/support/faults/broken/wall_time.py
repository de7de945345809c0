"""A broker whose leases and delays run on the wall clock, which never goes back for it."""

from support.faults import set_clock

import stoker.broker.clock as clocks
from stoker.broker.core.events import Now
from stoker.cli.main import main as stoker

_now = clocks.now
_highest_ms = 0


def wall_only() -> Now:
    """Three times the wall clock."""
    global _highest_ms
    _highest_ms = max(_highest_ms, _now().wall_ms)
    return Now(_highest_ms, _highest_ms, _highest_ms)


def main() -> None:
    """As `stoker`."""
    set_clock.install()
    clocks.__dict__["now"] = wall_only
    stoker()
