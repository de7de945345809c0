"""Frames: 4 bytes of big-endian length, then that many bytes.

`FrameReader` takes bytes in any chunking and gives whole frames. The length is checked as soon as
its four bytes are there, before anything is stored for it, so memory follows the bytes received
and never the bytes announced.
"""

import struct

from . import limits
from .errors import RemoteProtocolError

HEADER_BYTES = 4

_LENGTH = struct.Struct(">I")
_unpack_length = _LENGTH.unpack_from

header = _LENGTH.pack
"""The four bytes before a body of so many bytes."""


class FrameReader:
    """Collects bytes, hands out frames. `frame_bytes_max` may be changed between frames."""

    __slots__ = ("_buffer", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes as they came from the peer."""
        if self._start:
            # Compacting once a read, not once a frame, keeps many small frames linear.
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """The next whole frame, or None. RemoteProtocolError if the announced length is illegal."""
        buffer, body = self._buffer, self._start + HEADER_BYTES
        if len(buffer) < body:
            return None
        (length,) = _unpack_length(buffer, self._start)
        if not 0 < length <= self.frame_bytes_max:
            raise self._illegal(length)
        end = body + length
        if len(buffer) < end:
            return None
        self._start = end
        return bytes(buffer[body:end])

    def _illegal(self, length: int) -> RemoteProtocolError:
        if length == 0:
            return RemoteProtocolError("bad_frame", "empty frame")
        return RemoteProtocolError(
            "frame_too_large", f"frame of {length} bytes; the limit is {self.frame_bytes_max}"
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes received that are in no frame handed out yet; 0 between frames."""
        return len(self._buffer) - self._start
