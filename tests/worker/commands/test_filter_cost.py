"""What a filter holds, and that large pieces are not copied."""

import gc
import sys
from enum import Enum

import pytest
from support.filters import FRAMED, a_filter, drained, encoded, fed

from stoker.proto import limits
from stoker.worker.commands.filter import BLOCK_BYTES, Gap, Policy
from stoker.worker.commands.framing import Framing

MIB = limits.MIB
READ_BYTES = limits.READ_BYTES


def held_bytes(root: object) -> int:
    """All that hangs on an object, but for types, constants and code."""
    found, unseen = dict[int, int](), [root]
    while unseen:
        item = unseen.pop()
        if id(item) not in found and not isinstance(item, type | Enum):
            found[id(item)] = sys.getsizeof(item)
            unseen += gc.get_referents(item)
    return sum(found.values())


HELD_BYTES_LEAST = 8 * limits.KIB
"""The objects themselves."""


def held_bytes_max(bytes_max: int) -> int:
    """What waits, and a block that is partly gone; arrays of bytes that grow are an eighth too large."""
    return (bytes_max + max(READ_BYTES, BLOCK_BYTES)) * 9 // 8 + HELD_BYTES_LEAST


def test_a_large_piece_goes_through_without_a_copy() -> None:
    piece = bytes(READ_BYTES)
    assert fed(Policy.BLOCK, MIB, piece, framing=Framing.RAW).take() is piece


@pytest.mark.parametrize("framing", [Framing.LINES, Framing.RECORDS])
def test_a_line_of_350_megabytes_costs_no_more_than_the_bound(framing: Framing) -> None:
    kept, piece, worst = a_filter(Policy.KEEP, MIB, framing), b"x" * READ_BYTES, 0
    for _ in range(350 * 16):
        kept.feed(piece)
        worst = max(worst, held_bytes(kept))
    kept.feed(encoded(framing, b""))
    assert worst <= held_bytes_max(MIB)
    assert worst >= MIB
    assert drained(kept) == [Gap(350 * MIB + 1)]


def test_a_body_of_350_megabytes_costs_no_more_than_the_bound() -> None:
    kept = fed(Policy.KEEP, MIB, (350 * MIB).to_bytes(4, "big"), framing=Framing.LENGTHS)
    piece, worst = bytes(READ_BYTES), 0
    for _ in range(350 * 16):
        kept.feed(piece)
        worst = max(worst, held_bytes(kept))
    kept.feed(encoded(Framing.LENGTHS, b"next"))
    assert MIB <= worst <= held_bytes_max(MIB)
    assert drained(kept) == [Gap(350 * MIB + 4), b"next"]


@pytest.mark.parametrize("framing", Framing)
def test_a_flood_costs_no_more_than_the_bound(framing: Framing) -> None:
    kept, frames = a_filter(Policy.KEEP, 100_000, framing), encoded(framing, b"x" * 75) * 1000
    worst = 0
    for number in range(200):
        for start in range(0, len(frames), READ_BYTES - number):
            kept.feed(frames[start : start + READ_BYTES - number])
        worst = max(worst, held_bytes(kept))
    assert 100_000 <= worst <= held_bytes_max(100_000)
    assert 0 <= 100_000 - kept.waiting_bytes < len(encoded(framing, b"x" * 75))
    assert kept.dropped_bytes == kept.total_bytes - kept.waiting_bytes
    assert kept.take() == Gap(kept.dropped_bytes)


SINGLE_BYTES = [
    *((framing, 50_000) for framing in Framing),
    pytest.param(Framing.LINES, 1_000_000, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("framing", "count"), SINGLE_BYTES)
def test_single_bytes_cost_no_object_each(framing: Framing, count: int) -> None:
    blocked, frame = a_filter(Policy.BLOCK, 2 * MIB, framing), encoded(framing, b"x")
    for byte in frame * (count // len(frame)):
        blocked.feed(bytes((byte,)))
    assert blocked.waiting_bytes == count // len(frame) * len(frame)
    assert held_bytes(blocked) <= held_bytes_max(count)


@pytest.mark.parametrize("framing", FRAMED)
def test_a_million_empty_frames_cost_no_object_each(framing: Framing) -> None:
    kept, empty = a_filter(Policy.KEEP, MIB, framing), encoded(framing, b"")
    for _ in range(100):
        kept.feed(empty * 10_000)
    assert kept.waiting_bytes == min(1_000_000 * len(empty), MIB)
    assert held_bytes(kept) <= held_bytes_max(MIB)


def test_what_was_taken_of_a_block_costs_no_more_than_that_block() -> None:
    blocked, line = a_filter(Policy.BLOCK, 10 * MIB), b"x" * 1000 + b"\n"
    blocked.feed(line)
    for _ in range(5_000):
        blocked.feed(line)
        blocked.take()
    assert blocked.waiting_bytes == len(line)
    assert held_bytes(blocked) <= held_bytes_max(len(line))
