"""What a fault harness is to those who run it: a name, a goal, and a piece of work by seed.

A harness breaks something many times (kills, cuts the power, fills the disk, sends garbage) and says
what it did and which promises it saw broken. The short tests run a few rounds of it, `make proof` runs
it piece by piece until its goal is reached. The same seed and amount do the same again, as far as the
kernel's scheduler lets them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Tally(NamedTuple):
    """What one piece of work did."""

    counts: Mapping[str, int]
    """How often what was done, by name of the unit: `{"kills": 250, "jobs": 9120}`."""
    violations: Sequence[str] = ()
    """Every broken promise, in words, each with enough to find it again. Empty is the claim."""


class Harness(NamedTuple):
    """One kind of fault."""

    name: str
    """As in the results and on the command line, like `random_kills`."""
    title: str
    """What it does, for the table of the guarantees."""
    unit: str
    """The key of `Tally.counts` that the goal is counted in."""
    goal: int
    """Of the long tier, in that unit."""
    piece: int
    """So much is one piece: a minute or two, so that what is interrupted loses little."""
    run: Callable[[int, int], Tally]
    """(seed, amount) to what was done. Leaves nothing behind, whatever happens."""
    needs: Callable[[], str] = lambda: ""
    """Why it cannot run on this host, in words; empty if it can."""
