"""How a stream of bytes is cut into frames: where each of them ends, and nothing else.

    RAW      no frames: any piece of the stream may stand for itself
    LINES    each ends with a newline, which is no part of it; a CR before that is
    RECORDS  each ends with a NUL, which is no part of it
    LENGTHS  4 bytes of big-endian length, then so many bytes

A last line or record whose end byte never came is a frame all the same; a stream that ends within a frame of
known length has lost something, which is an error.

A `Cutter` is shown the stream in any chunking and remembers of it a count and at most three bytes: it never
holds frames, so that one of any length costs nothing here. Whoever holds them keeps whole frames together in
blocks, as they came, and asks the cutter where in a block the next one lies. So a frame costs no more
memory than it has bytes in the stream, were it empty.
"""

import struct
from enum import StrEnum
from typing import Protocol

from ...proto.errors import StokerError

LENGTH_BYTES = 4
"""Before each frame of a stream with lengths."""

_unpack_length = struct.Struct(">I").unpack_from

Block = bytes | bytearray
"""Whole frames, one behind the other, with their end bytes or lengths. Only the last of a stream may lack its
end byte."""


class Framing(StrEnum):
    """What a program's output is made of."""

    RAW = "raw"
    LINES = "lines"
    RECORDS = "records"
    LENGTHS = "lengths"


class TruncatedFrameError(StokerError):
    """The stream ended within a frame. `missing_bytes`: how many it lacks at least."""

    def __init__(self, message: str, missing_bytes: int) -> None:
        super().__init__(message)
        self.missing_bytes = missing_bytes


class Cutter(Protocol):
    """Finds the ends of frames. One for each stream, because `scan` remembers where the stream stands."""

    @property
    def missing_bytes(self) -> int:
        """What the frame that has begun lacks for certain; 0 between frames, and if nobody can know."""
        ...

    def scan(self, data: bytes) -> tuple[int, int]:
        """Look at what comes next in the stream: where in `data` the first and the last frame end that end
        there, as the index behind them; twice 0 if none does."""
        ...

    def boundary(self, block: Block, start: int, at: int) -> int:
        """The first index not below `at` where a frame ends. One begins at `start`, which is below `at`."""
        ...

    def frame(self, block: Block, start: int) -> tuple[int, int, int]:
        """Of the frame that begins at `start`: from where to where its bytes are, and where the next begins."""
        ...

    def truncation(self) -> TruncatedFrameError | None:
        """What is wrong if the stream ends here."""
        ...


class RawCutter:
    """Every byte ends a frame, so that all that is there may go on at any time."""

    missing_bytes = 0

    def scan(self, data: bytes) -> tuple[int, int]:
        return min(1, len(data)), len(data)

    def boundary(self, block: Block, start: int, at: int) -> int:
        return at

    def frame(self, block: Block, start: int) -> tuple[int, int, int]:
        return start, len(block), len(block)

    def truncation(self) -> TruncatedFrameError | None:
        return None


class SeparatorCutter:
    """Frames that end with one byte, which occurs in none of them."""

    missing_bytes = 0

    def __init__(self, separator: bytes) -> None:
        self._separator = separator

    def scan(self, data: bytes) -> tuple[int, int]:
        return data.find(self._separator) + 1, data.rfind(self._separator) + 1

    def boundary(self, block: Block, start: int, at: int) -> int:
        # From one byte before: if that is an end byte, `at` itself is what is looked for.
        return block.find(self._separator, at - 1) + 1 or len(block)

    def frame(self, block: Block, start: int) -> tuple[int, int, int]:
        end = block.find(self._separator, start)
        return (start, end, end + 1) if end >= 0 else (start, len(block), len(block))

    def truncation(self) -> TruncatedFrameError | None:
        return None


class LengthCutter:
    """Frames that say how long they are. One may say more than ever comes: nothing is made ready for it."""

    def __init__(self) -> None:
        self._length = b""
        """What there is of a length that came in part."""
        self._body_missing_bytes = 0

    @property
    def missing_bytes(self) -> int:
        return LENGTH_BYTES - len(self._length) if self._length else self._body_missing_bytes

    def scan(self, data: bytes) -> tuple[int, int]:
        end = self._complete_length(data) if self._length else self._body_missing_bytes
        if self._length:
            return 0, 0
        first, last = end, 0
        while end <= len(data) - LENGTH_BYTES:
            last, end = end, _end_of(data, end)
        # Now `end` lies too near to the end of `data` for another length, or beyond it, maybe far.
        self._body_missing_bytes = max(0, end - len(data))
        if end <= len(data):
            last, self._length = end, data[end:]
        return (first or _end_of(data, 0) if last else 0), last

    def _complete_length(self, data: bytes) -> int:
        """Add to a length that came in part. When it is whole it is done with: where its frame ends in `data`."""
        before = len(self._length)
        length = self._length + data[: LENGTH_BYTES - before]
        if len(length) < LENGTH_BYTES:
            self._length = length
            return 0
        self._length = b""
        return _end_of(length, 0) - before

    def boundary(self, block: Block, start: int, at: int) -> int:
        while start < at:
            start = _end_of(block, start)
        return start

    def frame(self, block: Block, start: int) -> tuple[int, int, int]:
        end = _end_of(block, start)
        return start + LENGTH_BYTES, end, end

    def truncation(self) -> TruncatedFrameError | None:
        if not (missing := self.missing_bytes):
            return None
        within = "the length of a frame" if self._length else "a frame"
        return TruncatedFrameError(f"the stream ended within {within}; bytes missing: {missing}", missing)


def _end_of(block: Block, start: int) -> int:
    """Of the frame whose length stands at `start`."""
    length: int = _unpack_length(block, start)[0]
    return start + LENGTH_BYTES + length


def cutter_of(framing: Framing) -> Cutter:
    """A new one, for the beginning of a stream."""
    if framing is Framing.RAW:
        return RawCutter()
    if framing is Framing.LENGTHS:
        return LengthCutter()
    return SeparatorCutter(b"\n" if framing is Framing.LINES else b"\0")
