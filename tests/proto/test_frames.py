"""Frames from bytes; any chunking is in `properties/test_frames.py`."""

import pytest

from stoker.proto import limits
from stoker.proto.errors import RemoteProtocolError
from stoker.proto.frames import FrameReader, header


def reader_of(data: bytes, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> FrameReader:
    reader = FrameReader(frame_bytes_max)
    reader.feed(data)
    return reader


def test_header_is_a_big_endian_length() -> None:
    assert header(0x010203) == b"\x00\x01\x02\x03"


def test_several_frames_in_one_read_come_out_in_order() -> None:
    reader = reader_of(header(1) + b"a" + header(2) + b"bc")
    assert [reader.next_frame(), reader.next_frame(), reader.next_frame()] == [b"a", b"bc", None]


def test_a_frame_is_whole_only_with_its_last_byte() -> None:
    reader = reader_of(header(3) + b"ab")
    assert reader.next_frame() is None
    reader.feed(b"c")
    assert reader.next_frame() == b"abc"


def test_pending_bytes_are_those_of_the_unfinished_frame() -> None:
    reader = reader_of(header(1) + b"a" + b"\x00\x00")
    assert reader.next_frame() == b"a"
    assert reader.pending_bytes == 2
    reader.feed(b"\x00")
    assert reader.pending_bytes == 3


def test_too_long_a_frame_is_refused_by_its_header_alone() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(header(11), 10).next_frame()
    assert caught.value.code == "frame_too_large"
    assert "11" in caught.value.message
    assert "10" in caught.value.message


def test_a_frame_at_the_limit_is_taken() -> None:
    assert reader_of(header(10) + bytes(10), 10).next_frame() == bytes(10)


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        reader_of(header(0)).next_frame()
    assert caught.value.code == "bad_frame"


def test_a_limit_changed_between_frames_holds_for_the_next() -> None:
    reader = reader_of(header(2) + b"ab" + header(2) + b"cd")
    assert reader.next_frame() == b"ab"
    reader.frame_bytes_max = 1
    with pytest.raises(RemoteProtocolError):
        reader.next_frame()
