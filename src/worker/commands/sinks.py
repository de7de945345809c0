"""Where the output of a program goes, as it is asked for.

    stdout=upload               an async function, called with bytes as they come
    stdout=lines(on_line)       ... with each line; `records` with what NULs separate, `lengths` with what its length precedes
    stdout=DISCARD              nowhere
    stdout=None                 its end is kept, for the report of a failure

A function that is awaited for long holds the program up (`block`, as by default: nothing is lost), or has what it did not
take in time replaced by a `Gap` (`keep`), or ends the job when there is more than the bound in all (`fail`).
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import NamedTuple

from ...proto import limits
from .filter import Gap, Policy
from .framing import Framing

HELD_BYTES = limits.MIB
"""Of a stream that waits for its function, if nothing else is said."""

Take = Callable[[bytes], Awaitable[object]]
Lost = Callable[[Gap], Awaitable[object]]


class Discard(Enum):
    """The one value that means: nowhere."""

    DISCARD = "discard"


DISCARD = Discard.DISCARD


class Sink(NamedTuple):
    """A function, and how it is to be called."""

    take: Take
    framing: Framing = Framing.RAW
    policy: Policy = Policy.BLOCK
    bytes_max: int = HELD_BYTES
    lost: Lost | None = None
    """Called in place of `take` for what was dropped (`keep`)."""


Output = Take | Sink | Discard | None
"""What `run` takes for a stream."""


def chunks(
    take: Take, *, policy: str = Policy.BLOCK, bytes_max: int = HELD_BYTES, lost: Lost | None = None
) -> Sink:
    """Bytes as they come, in pieces of any size."""
    return Sink(take, Framing.RAW, Policy(policy), bytes_max, lost)


def lines(
    take: Take, *, policy: str = Policy.BLOCK, bytes_max: int = HELD_BYTES, lost: Lost | None = None
) -> Sink:
    """Each line, without its newline. One longer than `bytes_max` is an error, or dropped if the policy is `keep`."""
    return Sink(take, Framing.LINES, Policy(policy), bytes_max, lost)


def records(
    take: Take, *, policy: str = Policy.BLOCK, bytes_max: int = HELD_BYTES, lost: Lost | None = None
) -> Sink:
    """What zero bytes separate, as of `find -print0`."""
    return Sink(take, Framing.RECORDS, Policy(policy), bytes_max, lost)


def lengths(
    take: Take, *, policy: str = Policy.BLOCK, bytes_max: int = HELD_BYTES, lost: Lost | None = None
) -> Sink:
    """Frames that begin with their length, four bytes, big-endian."""
    return Sink(take, Framing.LENGTHS, Policy(policy), bytes_max, lost)
