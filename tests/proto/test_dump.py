"""The blocks of `socat -x`."""

import pytest

from stoker.proto.dump import DumpReader, is_dump

HEADER = b"> 2026/11/29 17:28:16.000732792  length=9 from=0 to=8"
BACK = b"< 2026/11/29 17:28:16.000736288  length=2 from=0 to=1"


@pytest.mark.parametrize(
    ("data", "is_one"), [(HEADER, True), (BACK, True), (b"stats", False), (b"\0\0", False)]
)
def test_a_dump_begins_with_a_direction(data: bytes, is_one: bool) -> None:
    assert is_dump(data) is is_one


def test_pairs_are_bytes_of_the_last_named_direction() -> None:
    reader = DumpReader()
    assert reader.line(HEADER) == (">", b"")
    assert reader.line(b" 73 74 61 74 73 0d 0a 78 78") == (">", b"stats\r\nxx")
    assert reader.line(BACK) == ("<", b"")
    assert reader.line(b" 4f 4b") == ("<", b"OK")


def test_text_beside_the_pairs_is_not_taken_for_more() -> None:
    reader = DumpReader()
    reader.line(BACK)
    assert reader.line(b" 61 20                                            a ") == ("<", b"a ")
    assert reader.line(b" 62 62") == ("<", b"")


@pytest.mark.parametrize("line", [b"--", b"", b"2026/11/29 socat[1] N exiting", b" zz", b" 61"])
def test_a_line_outside_a_block_shows_nothing(line: bytes) -> None:
    assert DumpReader().line(line) == (">", b"")
