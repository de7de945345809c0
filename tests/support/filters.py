"""Filters for tests, what goes into them and what comes out."""

from stoker.worker.commands.filter import Filter, Gap, Policy
from stoker.worker.commands.framing import Framing

FRAMED = [Framing.LINES, Framing.RECORDS, Framing.LENGTHS]

Taken = list[bytes | Gap]


def encoded(framing: Framing, frame: bytes) -> bytes:
    """A frame as a program writes it."""
    if framing is Framing.LENGTHS:
        return len(frame).to_bytes(4, "big") + frame
    return frame + (b"\n" if framing is Framing.LINES else b"\0")


def a_filter(policy: Policy, bytes_max: int, framing: Framing = Framing.LINES) -> Filter:
    return Filter(framing, bytes_max, policy)


def fed(policy: Policy, bytes_max: int, *chunks: bytes, framing: Framing = Framing.LINES) -> Filter:
    """One that has been fed with all of these."""
    stream = a_filter(policy, bytes_max, framing)
    for chunk in chunks:
        stream.feed(chunk)
    return stream


def drained(stream: Filter) -> Taken:
    """All that can be taken."""
    return list(iter(stream.take, None))
