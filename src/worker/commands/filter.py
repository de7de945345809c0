"""What a program writes on one stream, on its way to a sink: bounded in bytes, cut into frames.

    pipe ──► feed ──► what waits ──► take ──► sink
                          └──► dropped, and counted

Pure: bytes in, frames out. It neither reads nor writes nor waits; it knows neither the process nor what the
sink does. A frame is never split, merged or reordered. Every byte that was fed is taken once, within a frame
or as the end byte or length that belongs to one, or is counted by one `Gap`, which comes where it was:

    total_bytes == taken, with end bytes and lengths + the sum of all gaps + what waits

What waits for the sink is counted in bytes of the stream, end bytes and lengths included. So `bytes_max`
bounds the number of empty frames too, and the largest frame is that much less what belongs to it. What is
kept never depends on the chunks in which the stream came. The policies differ in what happens at the bound:

    BLOCK  nothing is lost. `room` is 0 once `bytes_max` wait, until the sink has taken something: the pipe is
           not read, fills, and the program waits. One that writes a frame which never fits is in error.
    KEEP   the last bytes stay, as many whole frames as fit, and the oldest are dropped. A frame that is too
           large is dropped as a whole while it arrives, and its gap is held back until it has ended.
    FAIL   more than `bytes_max` in all is an error, however fast the sink takes them.

After an error the whole frames before it can be taken, then a gap for the rest.

What waits lies in blocks of whole frames, large pieces as they were fed and small ones gathered, beside the
beginning of one frame. So no byte is copied twice before it is taken, and neither a million tiny pieces nor
a million empty lines make a million objects.
"""

from collections import deque
from enum import StrEnum
from typing import NamedTuple, NoReturn

from ...proto import limits
from ...proto.errors import StokerError
from .framing import Block, Framing, cutter_of

BLOCK_BYTES = 64 * limits.KIB
"""So far small pieces are gathered in one block. What the sink has taken of a block goes with its last frame."""

_PIECE_BYTES = 4 * limits.KIB
"""A piece of so much is a block of its own: what an object costs beside it is little, and a copy is not."""


class Policy(StrEnum):
    """What happens when a program writes faster, or more, than there is room for."""

    BLOCK = "block"
    KEEP = "keep"
    FAIL = "fail"


class Gap(NamedTuple):
    """So many bytes of the stream were here, and are lost."""

    bytes: int


class OutputLimitError(StokerError):
    """The program wrote more than it may. The text says what the limit was."""


class Filter:
    """Between one stream and its sink. ValueError for a limit below 1.

    After each `feed` at most `bytes_max` bytes wait; with BLOCK, fed no more than `room` each time, fewer than
    `bytes_max` + `room`. Of the first block so much may be held beside them that is gone already: as much as
    was fed at once, or BLOCK_BYTES.
    """

    def __init__(
        self, framing: Framing, bytes_max: int, policy: Policy, *, read_bytes: int = limits.READ_BYTES
    ) -> None:
        for name, value in (("bytes_max", bytes_max), ("read_bytes", read_bytes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self.total_bytes = 0
        """All that was fed, also what was refused."""
        self.dropped_bytes = 0
        """Those of them that no sink gets."""
        self._is_raw = framing is Framing.RAW
        self._cutter = cutter_of(framing)
        self._bytes_max = bytes_max
        self._policy = policy
        # A frame that is too large is never whole within so much, so only one that goes beyond it can be.
        self._read_bytes = min(read_bytes, bytes_max) if policy is Policy.BLOCK else read_bytes
        self._blocks: deque[Block] = deque()
        self._start = 0
        """Where in the first block what waits begins."""
        self._whole_bytes = 0
        """What waits in all blocks."""
        self._begun = bytearray()
        """The frame whose end is still to come."""
        self._is_skipping = False
        """That frame is too large to be kept, and is dropped to its end."""
        self._taken_bytes = 0
        self._gap_before = 0
        """Dropped, and older than all that waits."""
        self._gap_after = 0
        """Dropped, and younger: by an error, after which nothing more is accepted."""
        self._failure: str | None = None
        self._has_ended = False

    @property
    def waiting_bytes(self) -> int:
        """Fed and kept, and not taken yet, the beginning of a frame included."""
        return self._whole_bytes + len(self._begun)

    @property
    def room(self) -> int:
        """How many bytes to read from the pipe now. 0 only with BLOCK, and only while there is something to take."""
        is_full = self._policy is Policy.BLOCK and self._blocks and self.waiting_bytes >= self._bytes_max
        return 0 if is_full else self._read_bytes

    def feed(self, data: bytes) -> None:
        """The program has written `data`. OutputLimitError if that is too much, and from then on each time."""
        assert not self._has_ended, "nothing comes after the end of a stream"
        self.total_bytes += len(data)
        if self._failure is not None:
            self._fail(self._failure)
        excess = max(0, self.total_bytes - self._bytes_max) if self._policy is Policy.FAIL else 0
        if excess:
            data = data[:-excess]
        if self._is_raw or len(data) <= self._read_bytes:
            self._accept(data)
        else:
            for at in range(0, len(data), self._read_bytes):
                self._accept(data[at : at + self._read_bytes])
        if excess:
            self._fail(f"output limit: more than {self._bytes_max} bytes")

    def take(self) -> bytes | Gap | None:
        """The next frame for the sink, without its end byte or length, which may be empty; of a RAW stream all
        that waits. A `Gap` where bytes are lost. None if there is nothing yet, or no more."""
        if self._gap_before and not self._is_skipping:
            gap, self._gap_before = Gap(self._gap_before), 0
            return gap
        if self._blocks:
            return self._take_all() if self._is_raw else self._take_frame()
        if self._gap_after:
            gap, self._gap_after = Gap(self._gap_after), 0
            return gap
        return None

    def end(self) -> None:
        """The stream has ended: its last frame may be taken. TruncatedFrameError if that is not whole; all
        before it can be taken still, and a gap for it."""
        truncation = None if self._has_ended or self._failure else self._cutter.truncation()
        self._has_ended, self._is_skipping = True, False
        if truncation is not None:
            self._lose_rest()
            raise truncation
        self._finish()

    def _accept(self, data: bytes) -> None:
        """Sort what was fed: whole frames behind the others, the beginning of one beside them."""
        first, last = self._cutter.scan(data)
        if last and (self._begun or self._is_skipping):
            self._go_on(data[:first])
            self._finish()
        else:
            first = 0
        self._store(data[first:last])
        self._go_on(data[last:])
        # One that says its length is refused by that alone: it may be waited for in vain.
        self._refuse_too_large(len(self._begun) + self._cutter.missing_bytes)
        if self._policy is Policy.KEEP:
            self._drop_oldest()

    def _go_on(self, data: bytes) -> None:
        """More of the frame that has begun, or its beginning."""
        if self._is_skipping:
            self._drop(len(data))
        else:
            self._begun += data

    def _finish(self) -> None:
        """The frame that has begun is whole."""
        self._is_skipping = False
        self._refuse_too_large(len(self._begun))
        begun, self._begun = self._begun, bytearray()
        self._store(begun)

    def _store(self, data: Block) -> None:
        """Whole frames, behind the others."""
        if not data:
            return
        self._whole_bytes += len(data)
        if len(data) >= _PIECE_BYTES:
            self._blocks.append(data)
            return
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, bytearray) and len(last) + len(data) <= BLOCK_BYTES:
            last += data
        else:
            self._blocks.append(bytearray(data))

    def _drop_oldest(self) -> None:
        """Whole frames until the rest fits; the one that has begun if it does not fit alone."""
        while (excess := self.waiting_bytes - self._bytes_max) > 0 and self._blocks:
            block, start = self._blocks[0], self._start
            whole = len(block) - start <= excess
            at = len(block) if whole else self._cutter.boundary(block, start, start + excess)
            self._drop(self._advance(at))
        if excess > 0:
            self._drop(len(self._begun))
            self._begun, self._is_skipping = bytearray(), True

    def _drop(self, count: int) -> None:
        self.dropped_bytes += count
        self._gap_before += count

    def _advance(self, at: int) -> int:
        """In the first block, up to the frame that begins at `at`: how many bytes have been left behind."""
        count = at - self._start
        self._whole_bytes -= count
        self._start = at
        if at == len(self._blocks[0]):
            self._blocks.popleft()
            self._start = 0
        return count

    def _take_frame(self) -> bytes:
        block = self._blocks[0]
        start, end, at = self._cutter.frame(block, self._start)
        frame = block[start:end]
        self._taken_bytes += self._advance(at)
        return frame if isinstance(frame, bytes) else bytes(frame)

    def _take_all(self) -> bytes:
        if self._start:
            self._blocks[0] = self._blocks[0][self._start :]
        data = b"".join(self._blocks)
        self._blocks.clear()
        self._start = self._whole_bytes = 0
        self._taken_bytes += len(data)
        return data

    def _refuse_too_large(self, frame_bytes: int) -> None:
        if self._policy is Policy.BLOCK and frame_bytes > self._bytes_max:
            self._fail(f"output limit: a frame of more than {self._bytes_max} bytes")

    def _fail(self, text: str) -> NoReturn:
        self._failure = text
        self._lose_rest()
        raise OutputLimitError(text)

    def _lose_rest(self) -> None:
        """All that was fed and is in no whole frame."""
        self._begun = bytearray()
        rest = self.total_bytes - self._taken_bytes - self._whole_bytes - self.dropped_bytes
        self.dropped_bytes += rest
        self._gap_after += rest
