"""One output stream of a program: read from its pipe, through its filter, to where it goes.

What was read is delivered before more is read, so a function that is slow to take it lets the pipe fill, and the program
wait. Only if the filter may drop something, reading goes on meanwhile, in a task of its own. Each read is followed
by everybody else's turn: a flood takes its share of the loop and no more. Once the program has ended, what is in
the pipe is read and no more, whoever still holds it open and writes.
"""

import array
import fcntl
import os
import select
import termios
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from ...proto import limits
from ..tails import Tail
from .filter import Filter, Gap, OutputLimitError, Policy
from .framing import TruncatedFrameError
from .sinks import DISCARD, Output, Sink

PIPE_BYTES = 256 * limits.KIB
"""Asked for, once a read finds a pipe full: what it takes before its writer has to wait. More is no quicker, and all
pipes of a user share 64 MiB, beyond which a new one takes two pages."""

PIPE_BYTES_FIRST = 64 * limits.KIB
"""What a pipe takes until then: so the kernel makes it."""

READ_BYTES = 120 * limits.KIB
"""Of one stream before it is somebody else's turn: some 50 µs. From 128 KiB on the C library maps memory anew for each
read and gives it back, which takes longer than the reading."""

TURN_S = 0.00025
"""Of one stream's frames: 20 floods take 5 ms for a round, and a round costs each of them a tenth of that."""

TURN_FRAMES = 16
"""Between two looks at the clock."""

TAIL_BYTES = limits.OUTPUT_BYTES_MAX


class Turn:
    """What one stream may deliver before it is somebody else's turn."""

    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._count = 0

    def is_over(self) -> bool:
        """To be asked for each frame."""
        self._count += 1
        return self._count % TURN_FRAMES == 0 and time.monotonic() - self._begun_s > TURN_S


class Stream:
    """See the module. Owns its end of the pipe."""

    def __init__(self, output: Output, also: Callable[[bytes], object] | None = None) -> None:
        """`also` is called with all that is read, before it is filtered."""
        self._also = also
        self.total_bytes = 0
        """So much was read of it."""
        self._sink = (
            None if output in (None, DISCARD) else output if isinstance(output, Sink) else Sink(output)
        )
        self._tail = Tail(TAIL_BYTES) if output is None else None
        sink = self._sink
        self._filter = _filter_for(sink) if sink is not None else None
        self._delivers_first = sink is None or sink.policy is not Policy.KEEP
        """Before more is read."""
        # Last: until then there is nothing to close should one of them be refused.
        self._reader, self._writer = _pipe()
        self._left_bytes: int | None = None
        """What was in the pipe when the program had ended, and is still to be read; None before that."""
        self._is_read = False
        self._failure: Exception | None = None
        """What was wrong with the stream itself."""
        self.is_held = False
        """When the program had ended somebody else had it open still."""
        self._waiting: anyio.CancelScope | None = None
        self._was_waited_for = False
        """Else there is nobody to be told that the descriptor is closed, which takes as long as closing it."""
        self._changed: anyio.Event | None = None
        """Set when there is something to deliver, or nothing will come any more."""
        self._is_large = False

    @property
    def tail(self) -> bytes:
        """The end of what goes to no function, and is not discarded either."""
        return b"" if self._tail is None else self._tail.data

    @property
    def childs_end(self) -> int:
        """The descriptor for the program."""
        return self._writer

    def fileno(self) -> int:
        """Our end; -1 when it is closed."""
        return self._reader

    def started(self) -> None:
        """The program has its end, or never will."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def over(self) -> None:
        """The program has ended: what is in the pipe now is all."""
        if self._reader < 0 or self._left_bytes is not None:
            return
        self._left_bytes = _waiting_bytes(self._reader)
        self.is_held = not (_has_hung_up if self._left_bytes else _is_at_end)(self._reader)
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        """Let go of the pipe. A program that goes on writing gets SIGPIPE."""
        self.started()
        if self._reader >= 0:
            if self._was_waited_for:
                anyio.notify_closing(self._reader)
            os.close(self._reader)
            self._reader = -1

    @property
    def works(self) -> list[Callable[[], Awaitable[None]]]:
        """What is to be done side by side, each until it ends, so that all of it gets to its function.

        OutputLimitError, TruncatedFrameError, when all before them is delivered; whatever the function raises.
        """
        return [self._read] if self._delivers_first else [self._read, self._deliver_until_read]

    def read_once(self) -> bool:
        """For whoever waits for the descriptor himself: note what there is, without a function; False at the end."""
        try:
            data = read_all(self._reader, READ_BYTES)
        except BlockingIOError:
            return True
        self._note(data)
        return bool(data)

    def read_rest(self) -> None:
        """The same for what was in the pipe when the program had ended."""
        while self._left_bytes and (data := os.read(self._reader, min(self._left_bytes, READ_BYTES))):
            self._left_bytes -= len(data)
            self._note(data)

    async def drain(self) -> None:
        """Read what is not read yet, until it ends, for the sake of the tail and of a program that would wait.

        Cannot be cancelled: it ends with the program.
        """
        with anyio.CancelScope(shield=True):
            while self._reader >= 0 and (data := await self._some(READ_BYTES)):
                self._note(data)
                await anyio.lowlevel.checkpoint()

    async def _read(self) -> None:
        while data := await self._some(self._room):
            if not self._take(data):
                break
            if self._delivers_first:
                await self._deliver()
            await anyio.lowlevel.checkpoint()
        self._end()
        if self._delivers_first:
            await self._deliver_last()

    @property
    def _room(self) -> int:
        room = READ_BYTES if self._filter is None else self._filter.room
        assert room > 0, "what could be delivered was, and a frame that never fits was refused"
        return room

    async def _some(self, bytes_max: int) -> bytes:
        """What there is next, as soon as there is something; nothing at the end."""
        while True:
            if self._left_bytes is not None:
                bytes_max = min(bytes_max, self._left_bytes)
            try:
                data = read_all(self._reader, bytes_max) if bytes_max else b""
            except BlockingIOError:
                self._was_waited_for = True
                with anyio.CancelScope() as self._waiting:
                    await anyio.wait_readable(self._reader)
                self._waiting = None
                continue
            if self._left_bytes is not None:
                self._left_bytes -= len(data)
            return data

    def _take(self, data: bytes) -> bool:
        """Whether there may be more of it."""
        self._note(data)
        if self._filter is None:
            return True
        try:
            self._filter.feed(data)
        except OutputLimitError as error:
            self._failure = error
        self._tell()
        return self._failure is None

    def _end(self) -> None:
        """Nothing more is taken."""
        if self._filter is not None:
            try:
                self._filter.end()
            except TruncatedFrameError as error:
                self._failure = error
        self._is_read = True
        self._tell()

    def _note(self, data: bytes) -> None:
        if self._also is not None:
            self._also(data)
        self.total_bytes += len(data)
        if self._tail is not None:
            self._tail.add(data)
        if len(data) >= PIPE_BYTES_FIRST and not self._is_large:
            self._is_large = True
            _enlarge(self._reader)

    async def _deliver(self) -> None:
        """What the filter holds in whole frames."""
        if self._filter is None or self._sink is None:
            return
        turn = Turn()
        while (frame := self._filter.take()) is not None:
            if not isinstance(frame, Gap):
                await self._sink.take(frame)
            elif self._sink.lost is not None:
                await self._sink.lost(frame)
            if turn.is_over():
                # A function that never waits would have the loop for all frames of a read.
                await anyio.lowlevel.checkpoint()
                turn = Turn()

    async def _deliver_last(self) -> None:
        """What was whole is for the function, and then it is said what was wrong with the rest."""
        await self._deliver()
        if self._failure is not None:
            raise self._failure

    async def _deliver_until_read(self) -> None:
        while not self._is_read:
            changed = self._changed = anyio.Event()
            await self._deliver()
            if not self._is_read:
                await changed.wait()
        await self._deliver_last()

    def _tell(self) -> None:
        """There is something to deliver, or nothing will come any more."""
        if self._changed is not None:
            self._changed.set()


def _filter_for(sink: Sink) -> Filter:
    return Filter(sink.framing, sink.bytes_max, sink.policy, read_bytes=READ_BYTES)


def _pipe() -> tuple[int, int]:
    """Its ends; ours, for reading, does not block."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(reader, False)
    return reader, writer


def read_all(fd: int, bytes_max: int) -> bytes:
    """What there is, at most so much; nothing at the end. BlockingIOError if there is nothing yet.

    In as many reads as it takes: who writes in small pieces does so while this reads, from cache to cache.
    """
    data = os.read(fd, bytes_max)
    pieces, size = [data], len(data)
    with suppress(BlockingIOError):
        while data and size < bytes_max:
            data = os.read(fd, bytes_max - size)
            pieces.append(data)
            size += len(data)
    return b"".join(pieces)


def _enlarge(fd: int) -> None:
    with suppress(OSError):
        # More than a user may have in all of his pipes: then it is as large as it was.
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _waiting_bytes(fd: int) -> int:
    """What could be read from a pipe now."""
    found = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, found)
    return found[0]


def _is_at_end(fd: int) -> bool:
    """Of an empty pipe the same as `_has_hung_up`, in one call. What it may read of it came too late."""
    try:
        return not os.read(fd, 1)
    except BlockingIOError:
        return False


def _has_hung_up(fd: int) -> bool:
    """Nobody has the other end of a pipe."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))
