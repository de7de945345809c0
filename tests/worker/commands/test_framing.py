"""Where frames end, in any chunking."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.worker.commands.framing import Cutter, Framing, TruncatedFrameError, cutter_of

SAMPLES = {
    Framing.LINES: b"one\n\ntwo\r\nlast\n",
    Framing.RECORDS: b"one\0\0two\n\0last\0",
    Framing.LENGTHS: b"\0\0\0\3one\0\0\0\0\0\0\0\4two\n\0\0\0\4last",
}
FRAMES = {
    Framing.LINES: [b"one", b"", b"two\r", b"last"],
    Framing.RECORDS: [b"one", b"", b"two\n", b"last"],
    Framing.LENGTHS: [b"one", b"", b"two\n", b"last"],
}
FRAMED = list(SAMPLES)


def encoded(framing: Framing, frame: bytes) -> bytes:
    if framing is Framing.LENGTHS:
        return len(frame).to_bytes(4, "big") + frame
    return frame.replace(b"\n", b"-").replace(b"\0", b"-") + (b"\n" if framing is Framing.LINES else b"\0")


def frames_in(framing: Framing, block: bytes) -> Iterator[bytes]:
    cutter, start = cutter_of(framing), 0
    while start < len(block):
        begin, end, start = cutter.frame(block, start)
        yield block[begin:end]


def after(framing: Framing, *chunks: bytes) -> Cutter:
    cutter = cutter_of(framing)
    for chunk in chunks:
        cutter.scan(chunk)
    return cutter


def truncation(*chunks: bytes) -> TruncatedFrameError:
    found = after(Framing.LENGTHS, *chunks).truncation()
    assert found is not None
    return found


@pytest.mark.parametrize("framing", FRAMED)
def test_frames_are_what_stands_between_their_ends(framing: Framing) -> None:
    assert list(frames_in(framing, SAMPLES[framing])) == FRAMES[framing]


def test_a_last_line_needs_no_newline() -> None:
    assert list(frames_in(Framing.LINES, b"one\ntwo")) == [b"one", b"two"]


def test_a_raw_block_is_one_frame() -> None:
    assert list(frames_in(Framing.RAW, b"a\n\0b")) == [b"a\n\0b"]


@pytest.mark.parametrize("framing", FRAMED)
def test_a_scan_finds_the_first_and_the_last_end(framing: Framing) -> None:
    frames = [encoded(framing, frame) for frame in (b"one", b"two", b"three")]
    data = b"".join(frames) + encoded(framing, b"begun")[:-1]
    assert cutter_of(framing).scan(data) == (len(frames[0]), len(b"".join(frames)))


@pytest.mark.parametrize("framing", FRAMED)
def test_a_scan_without_an_end_finds_none(framing: Framing) -> None:
    assert cutter_of(framing).scan(encoded(framing, b"begun")[:-1]) == (0, 0)


def test_every_raw_byte_may_be_the_last_of_a_frame() -> None:
    assert cutter_of(Framing.RAW).scan(b"abc") == (1, 3)
    assert cutter_of(Framing.RAW).scan(b"") == (0, 0)


@given(
    st.sampled_from(FRAMED),
    st.lists(st.binary(max_size=6), max_size=8),
    st.lists(st.integers(0, 80), max_size=30),
)
def test_any_chunking_has_the_same_ends(framing: Framing, frames: list[bytes], cuts: list[int]) -> None:
    pieces = [encoded(framing, frame) for frame in frames]
    data = b"".join(pieces)
    ends = [len(b"".join(pieces[: count + 1])) for count in range(len(pieces))]
    cutter = cutter_of(framing)
    for start, stop in pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]):
        within = [end - start for end in ends if start < end <= stop]
        assert cutter.scan(data[start:stop]) == ((within[0], within[-1]) if within else (0, 0))


@pytest.mark.parametrize("framing", FRAMED)
def test_a_boundary_is_the_first_end_that_is_not_below(framing: Framing) -> None:
    frames = [encoded(framing, frame) for frame in (b"", b"one", b"", b"three")]
    data = b"".join(frames)
    ends = [len(b"".join(frames[: count + 1])) for count in range(len(frames))]
    for at in range(1, len(data) + 1):
        assert cutter_of(framing).boundary(data, 0, at) == min(end for end in ends if end >= at)


def test_the_end_of_a_last_line_without_newline_is_a_boundary() -> None:
    assert cutter_of(Framing.LINES).boundary(b"one\ntwo", 0, 5) == 7


def test_raw_streams_may_be_cut_anywhere() -> None:
    assert cutter_of(Framing.RAW).boundary(b"abcdef", 1, 4) == 4


def test_a_body_lacks_what_its_length_says() -> None:
    assert after(Framing.LENGTHS, b"\0\0\0\1a\0\0\0\5ab").missing_bytes == 3
    assert after(Framing.LENGTHS, b"\0\0", b"\0\5", b"a", b"b").missing_bytes == 3


def test_an_announced_length_is_known_before_its_body() -> None:
    assert after(Framing.LENGTHS, b"\xff\xff\xff\xff").missing_bytes == 2**32 - 1


def test_a_length_lacks_what_there_is_not_of_its_four_bytes() -> None:
    assert after(Framing.LENGTHS, b"\0\0\0\1a\0").missing_bytes == 3


def test_nothing_is_missing_between_frames() -> None:
    cutter = after(Framing.LENGTHS, b"\0\0\0\1a", b"\0\0\0\0")
    assert cutter.missing_bytes == 0
    assert cutter.truncation() is None


def test_an_end_within_a_body_says_how_much_is_missing() -> None:
    error = truncation(b"\0\0\0\5", b"ab")
    assert error.missing_bytes == 3
    assert str(error) == "the stream ended within a frame; bytes missing: 3"


def test_an_end_within_a_length_says_how_much_is_missing_at_least() -> None:
    error = truncation(b"\0\0\0")
    assert error.missing_bytes == 1
    assert str(error) == "the stream ended within the length of a frame; bytes missing: 1"


@pytest.mark.parametrize("framing", [Framing.RAW, Framing.LINES, Framing.RECORDS])
def test_other_streams_may_end_anywhere(framing: Framing) -> None:
    cutter = after(framing, b"anything")
    assert cutter.truncation() is None
    assert cutter.missing_bytes == 0
