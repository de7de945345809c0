"""What comes of a job's program goes to the stream it belongs to."""

import pytest

from stoker.cli.attached import write
from stoker.client.following import Piece
from stoker.proto.messages import STDERR, STDOUT


def test_each_stream_goes_where_it_belongs(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write(Piece(STDOUT, b"out\xff"))
    write(Piece(STDERR, b"err"))
    assert capsysbinary.readouterr() == (b"out\xff", b"err")


def test_what_is_lost_is_told_before_what_comes_after_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write(Piece(STDERR, b"after", lost_bytes=7))
    assert capsysbinary.readouterr() == (b"", b"stoker: gap of 7 bytes\nafter")
