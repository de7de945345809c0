"""Any stream in any chunks, however quickly it is taken: nothing lost but what was counted, nothing out of place."""

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.filters import FRAMED, Taken, a_filter, drained, encoded, fed

from stoker.worker.commands.filter import Filter, Gap, OutputLimitError, Policy
from stoker.worker.commands.framing import Framing


def frames_of(taken: Taken) -> list[bytes]:
    return [item for item in taken if not isinstance(item, Gap)]


def gap_bytes(taken: Taken) -> int:
    return sum(item.bytes for item in taken if isinstance(item, Gap))


class Stream:
    """Frames, and the stream that they make; its last one may lack its newline."""

    def __init__(self, framing: Framing, frames: list[bytes], is_open: bool) -> None:
        self.framing = framing
        pieces = [encoded(framing, frame) for frame in frames]
        if is_open and pieces and framing is not Framing.LENGTHS:
            pieces[-1] = pieces[-1][:-1]
        self.pieces = [piece for piece in pieces if piece]
        self.frames = frames[: len(self.pieces)]
        self.data = b"".join(self.pieces)

    def __repr__(self) -> str:
        return f"Stream({self.framing}, {self.data!r})"

    def chunks(self, cuts: list[int]) -> Iterator[bytes]:
        for start, end in pairwise([0, *sorted(cut % (len(self.data) + 1) for cut in cuts), len(self.data)]):
            yield self.data[start:end]

    def at(self) -> dict[int, tuple[bytes, int]]:
        """By where it begins, each frame and where it ends with all that belongs to it."""
        ends = list(accumulate(map(len, self.pieces), initial=0))
        return dict(zip(ends, zip(self.frames, ends[1:], strict=True), strict=False))


STREAMS = st.builds(
    Stream,
    st.sampled_from(FRAMED),
    st.lists(st.text("ab", max_size=12).map(str.encode), max_size=12),
    st.booleans(),
)
RAW_STREAMS = st.binary(max_size=100)
CUTS = st.lists(st.integers(0, 200), max_size=30)
FLIPS = st.lists(st.booleans(), max_size=60)


def check_places(stream: Stream, taken: Taken) -> None:
    """Every frame and every gap stands where its bytes were, and together they are the whole stream."""
    at, place = stream.at(), 0
    for item in taken:
        if isinstance(item, Gap):
            assert item.bytes > 0
            place += item.bytes
        else:
            frame, place = at[place]
            assert item == frame
    assert place == len(stream.data)


@pytest.mark.parametrize("policy", Policy)
@given(stream=STREAMS, cuts=CUTS)
def test_any_chunking_gives_the_same_frames(policy: Policy, stream: Stream, cuts: list[int]) -> None:
    one = fed(policy, 1000, *stream.chunks(cuts), framing=stream.framing)
    one.end()
    assert drained(one) == stream.frames
    assert (one.total_bytes, one.dropped_bytes, one.waiting_bytes) == (len(stream.data), 0, 0)


@given(STREAMS, CUTS, st.integers(1, 40))
def test_keep_has_the_most_whole_frames_that_fit(stream: Stream, cuts: list[int], bytes_max: int) -> None:
    kept = fed(Policy.KEEP, bytes_max, *stream.chunks(cuts), framing=stream.framing)
    kept.end()
    start = min(place for place in [*stream.at(), len(stream.data)] if len(stream.data) - place <= bytes_max)
    frames = [frame for place, (frame, _) in stream.at().items() if place >= start]
    assert drained(kept) == [*([Gap(start)] if start else []), *frames]
    assert kept.dropped_bytes == start


@given(STREAMS, CUTS, st.integers(1, 40), FLIPS)
def test_keep_accounts_for_every_byte_where_it_was(
    stream: Stream, cuts: list[int], bytes_max: int, flips: list[bool]
) -> None:
    kept, taken = a_filter(Policy.KEEP, bytes_max, stream.framing), Taken()
    for number, chunk in enumerate(stream.chunks(cuts)):
        kept.feed(chunk)
        assert kept.waiting_bytes <= bytes_max
        if flips[number : number + 1] == [True] and (item := kept.take()) is not None:
            taken.append(item)
    kept.end()
    taken += drained(kept)
    check_places(stream, taken)
    assert kept.dropped_bytes == gap_bytes(taken)


@given(RAW_STREAMS, CUTS, st.integers(1, 40), FLIPS)
def test_raw_keep_accounts_for_every_byte_where_it_was(
    data: bytes, cuts: list[int], bytes_max: int, flips: list[bool]
) -> None:
    kept, taken = a_filter(Policy.KEEP, bytes_max, Framing.RAW), Taken()
    for number, (start, end) in enumerate(pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts)])):
        kept.feed(data[start:end])
        assert kept.waiting_bytes <= bytes_max
        if flips[number : number + 1] == [True]:
            taken += drained(kept)
    taken += drained(kept)
    place = 0
    for item in taken:
        if not isinstance(item, Gap):
            assert item == data[place : place + len(item)]
        place += item.bytes if isinstance(item, Gap) else len(item)
    assert place == kept.total_bytes


def driven(stream: Filter, data: bytes, bytes_max: int, flips: Iterable[bool]) -> Taken:
    """Feed what there is room for, or take, as it comes; then the rest."""
    taken, turns = Taken(), iter(flips)
    while data:
        room = stream.room
        if room and next(turns, True):
            stream.feed(data[:room])
            data = data[room:]
            assert stream.waiting_bytes < bytes_max + room
        elif (item := stream.take()) is not None:
            taken.append(item)
        else:
            assert room, "neither room nor anything to take"
    stream.end()
    return taken + drained(stream)


@given(STREAMS, st.integers(16, 40), st.integers(1, 40), FLIPS)
def test_block_loses_nothing(stream: Stream, bytes_max: int, read_bytes: int, flips: list[bool]) -> None:
    blocked = Filter(stream.framing, bytes_max, Policy.BLOCK, read_bytes=read_bytes)
    assert driven(blocked, stream.data, bytes_max, flips) == stream.frames
    assert blocked.dropped_bytes == 0


@given(RAW_STREAMS, st.integers(1, 40), st.integers(1, 40), FLIPS)
def test_raw_block_loses_nothing(data: bytes, bytes_max: int, read_bytes: int, flips: list[bool]) -> None:
    blocked = Filter(Framing.RAW, bytes_max, Policy.BLOCK, read_bytes=read_bytes)
    assert b"".join(frames_of(driven(blocked, data, bytes_max, flips))) == data


def before_error(policy: Policy, stream: Stream, bytes_max: int) -> list[bytes]:
    """All before a frame that is too large, or what is whole within the first bytes."""
    if policy is Policy.BLOCK:
        fitting = takewhile(lambda piece: len(piece) <= bytes_max, stream.pieces)
        return stream.frames[: len(list(fitting))]
    return [frame for frame, end in stream.at().values() if end <= bytes_max]


@pytest.mark.parametrize("policy", [Policy.BLOCK, Policy.FAIL])
@given(stream=STREAMS, cuts=CUTS, bytes_max=st.integers(1, 15))
def test_an_error_leaves_the_frames_before_it(
    policy: Policy, stream: Stream, cuts: list[int], bytes_max: int
) -> None:
    limited, failures = a_filter(policy, bytes_max, stream.framing), 0
    for chunk in stream.chunks(cuts):
        try:
            limited.feed(chunk)
        except OutputLimitError:
            failures += 1
    limited.end()
    taken = drained(limited)
    check_places(stream, taken)
    assert frames_of(taken) == before_error(policy, stream, bytes_max)
    assert (failures > 0) == (gap_bytes(taken) > 0)
    assert limited.dropped_bytes == gap_bytes(taken)
