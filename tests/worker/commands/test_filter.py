"""What a filter lets through, at its limits and at the end of a stream. Any stream: `test_filter_streams`."""

import pytest
from support.filters import FRAMED, a_filter, drained, encoded, fed

from stoker.proto import limits
from stoker.worker.commands.filter import Filter, Gap, OutputLimitError, Policy
from stoker.worker.commands.framing import Framing, TruncatedFrameError

MIB = limits.MIB
READ_BYTES = limits.READ_BYTES


@pytest.mark.parametrize("framing", Framing)
def test_fail_accepts_its_limit_and_not_a_byte_more(framing: Framing) -> None:
    frame = encoded(framing, b"abcdef")
    limited = fed(Policy.FAIL, len(frame), frame, framing=framing)
    with pytest.raises(OutputLimitError, match=f"^output limit: more than {len(frame)} bytes$"):
        limited.feed(b"\0")


def test_fail_counts_what_was_taken_already() -> None:
    limited = fed(Policy.FAIL, 4, b"a\nb\n")
    assert drained(limited) == [b"a", b"b"]
    with pytest.raises(OutputLimitError):
        limited.feed(b"c")


def test_fail_lets_raw_bytes_through_up_to_its_limit() -> None:
    limited = fed(Policy.FAIL, 5, b"abc", framing=Framing.RAW)
    with pytest.raises(OutputLimitError):
        limited.feed(b"defg")
    assert drained(limited) == [b"abcde", Gap(2)]


def test_fail_splits_no_frame_at_its_limit() -> None:
    limited = a_filter(Policy.FAIL, 5)
    with pytest.raises(OutputLimitError):
        limited.feed(b"one\ntwo\n")
    limited.end()
    assert drained(limited) == [b"one", Gap(4)]


@pytest.mark.parametrize("policy", [Policy.BLOCK, Policy.FAIL])
def test_nothing_is_accepted_after_an_error(policy: Policy) -> None:
    limited = a_filter(policy, 4)
    for _ in range(2):
        with pytest.raises(OutputLimitError, match=r" 4 bytes$"):
            limited.feed(b"abcdef")
    with pytest.raises(OutputLimitError):
        limited.feed(b"\n")
    assert (limited.total_bytes, limited.dropped_bytes, limited.waiting_bytes) == (13, 13, 0)


@pytest.mark.parametrize("framing", FRAMED)
def test_block_takes_the_largest_frame_that_fits(framing: Framing) -> None:
    frame = encoded(framing, b"abcdef")
    assert drained(fed(Policy.BLOCK, len(frame), frame, framing=framing)) == [b"abcdef"]


@pytest.mark.parametrize("framing", FRAMED)
def test_block_refuses_a_frame_that_never_fits(framing: Framing) -> None:
    frame = encoded(framing, b"abcdef")
    with pytest.raises(
        OutputLimitError, match=f"^output limit: a frame of more than {len(frame) - 1} bytes$"
    ):
        fed(Policy.BLOCK, len(frame) - 1, frame, framing=framing)


def test_block_refuses_an_announced_length_before_its_body() -> None:
    with pytest.raises(OutputLimitError):
        fed(Policy.BLOCK, MIB, b"\xff\xff\xff\xff", framing=Framing.LENGTHS)


def test_a_last_line_without_newline_may_be_as_long_as_the_limit() -> None:
    blocked = fed(Policy.BLOCK, 4, b"ab", b"cd")
    blocked.end()
    assert drained(blocked) == [b"abcd"]


@pytest.mark.parametrize("policy", [Policy.KEEP, Policy.FAIL])
def test_there_is_always_room_if_nothing_may_block(policy: Policy) -> None:
    full = fed(policy, 4, b"a\nb\n")
    assert full.waiting_bytes == 4
    assert full.room == READ_BYTES


def test_block_has_no_room_from_its_limit_on() -> None:
    blocked = fed(Policy.BLOCK, 4, b"a\nb")
    assert blocked.room == 4
    blocked.feed(b"\n")
    assert blocked.room == 0


def test_block_has_room_again_when_something_was_taken() -> None:
    blocked = fed(Policy.BLOCK, 4, b"a\nb\n")
    blocked.take()
    assert blocked.room == 4


def test_block_reads_on_if_only_the_end_of_a_frame_makes_something_to_take() -> None:
    blocked = fed(Policy.BLOCK, 4, b"abcd")
    assert blocked.take() is None
    assert blocked.room == 4


def test_a_read_is_as_large_as_was_asked_for() -> None:
    assert Filter(Framing.RAW, MIB, Policy.BLOCK, read_bytes=1000).room == 1000


@pytest.mark.parametrize("limit", ["bytes_max", "read_bytes"])
def test_a_limit_of_nothing_is_refused(limit: str) -> None:
    sizes = {"bytes_max": 10, "read_bytes": 10, limit: 0}
    with pytest.raises(ValueError, match=f"^{limit} must be at least 1, not 0$"):
        Filter(Framing.RAW, sizes["bytes_max"], Policy.KEEP, read_bytes=sizes["read_bytes"])


def test_raw_keep_has_exactly_the_last_bytes() -> None:
    assert drained(fed(Policy.KEEP, 4, b"abc", b"def", framing=Framing.RAW)) == [Gap(2), b"cdef"]


def test_what_was_taken_is_no_gap() -> None:
    kept = fed(Policy.KEEP, 4, b"abcd", framing=Framing.RAW)
    assert kept.take() == b"abcd"
    kept.feed(b"efgh")
    assert drained(kept) == [b"efgh"]


def test_a_frame_that_is_too_large_leaves_one_gap_when_it_has_ended() -> None:
    kept = fed(Policy.KEEP, 8, b"one\n")
    assert kept.take() == b"one"
    for _ in range(5):
        kept.feed(b"abcde")
        assert kept.take() is None
    kept.feed(b"\ntwo\n")
    assert drained(kept) == [Gap(26), b"two"]


def test_a_frame_that_is_too_large_leaves_its_gap_when_the_stream_ends() -> None:
    kept = fed(Policy.KEEP, 8, b"abcdefghi")
    assert (kept.dropped_bytes, kept.take()) == (9, None)
    kept.end()
    assert drained(kept) == [Gap(9)]


@pytest.mark.parametrize("policy", Policy)
def test_a_stream_that_ends_within_a_frame_leaves_a_gap_for_it(policy: Policy) -> None:
    cut = fed(policy, 100, b"\0\0\0\3one", b"\0\0\0\7tw", framing=Framing.LENGTHS)
    with pytest.raises(TruncatedFrameError) as caught:
        cut.end()
    assert caught.value.missing_bytes == 5
    assert drained(cut) == [b"one", Gap(6)]


def test_a_stream_that_ends_within_a_frame_that_is_dropped_leaves_one_gap() -> None:
    cut = fed(Policy.KEEP, 8, b"\0\0\0\3one", b"\0\0\0\x10abcdef", framing=Framing.LENGTHS)
    with pytest.raises(TruncatedFrameError):
        cut.end()
    assert drained(cut) == [Gap(17)]


def test_an_end_comes_once() -> None:
    cut = fed(Policy.BLOCK, 100, b"\0\0", framing=Framing.LENGTHS)
    with pytest.raises(TruncatedFrameError):
        cut.end()
    cut.end()
    assert drained(cut) == [Gap(2)]


def test_a_stream_without_bytes_has_no_frames() -> None:
    silent = fed(Policy.BLOCK, 100, b"")
    silent.end()
    assert drained(silent) == []
