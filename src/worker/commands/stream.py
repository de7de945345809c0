"""One output stream of a program: read from its pipe, through its filter, to where it goes.

What was read is delivered before more is read, so a function that is slow to take it lets the pipe fill, and the program
wait. Only if the filter may drop something, reading goes on meanwhile, in a task of its own. Each read is followed
by everybody else's turn: a flood takes its share of the loop and no more. Nothing is read after the program has
ended and the pipe is empty, whoever still holds it open.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from ...proto import limits
from .filter import Filter, Gap, Policy
from .sinks import DISCARD, Output, Sink

PIPE_BYTES = limits.MIB
"""Asked for: what a pipe takes before its writer has to wait. An unprivileged process gets this much as a rule."""

READ_BYTES = 256 * limits.KIB
"""Of one stream before it is somebody else's turn: some 50 µs."""

TURN_S = 0.001
TURN_FRAMES = 16
"""Between two looks at the clock."""

TAIL_BYTES = limits.OUTPUT_BYTES_MAX


class Tail:
    """The end of a stream, for reports."""

    def __init__(self, bytes_max: int = TAIL_BYTES) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        """More of it."""
        self.total_bytes += len(data)
        self._held += data[-self._bytes_max :]
        if len(self._held) > 2 * self._bytes_max:
            del self._held[: -self._bytes_max]

    @property
    def text(self) -> bytes:
        """At most so much of its end."""
        return bytes(self._held[-self._bytes_max :])


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
        reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        with suppress(OSError):
            # More than a user may have in all of his pipes: then it is as large as it was.
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._reader = reader
        self._also = also
        self.tail = Tail()
        self._sink = (
            None if output in (None, DISCARD) else output if isinstance(output, Sink) else Sink(output)
        )
        self._keeps_tail = output is None
        sink = self._sink
        self._filter = Filter(sink.framing, sink.bytes_max, sink.policy) if sink is not None else None
        self._is_over = self._is_read = False
        self.is_held = False
        """When it was read for the last time, somebody else had it open still."""
        self._waiting: anyio.CancelScope | None = None
        self._changed = anyio.Event()

    @property
    def childs_end(self) -> int:
        """The descriptor for the program."""
        return self._writer

    def started(self) -> None:
        """The program has its end, or never will."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def over(self) -> None:
        """The program has ended: what is in the pipe now is all."""
        self._is_over = True
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        """Let go of the pipe. A program that goes on writing gets SIGPIPE."""
        self.started()
        if self._reader >= 0:
            anyio.notify_closing(self._reader)
            os.close(self._reader)
            self._reader = -1

    async def pump(self) -> None:
        """All of it, until it ends. OutputLimitError; whatever the function raises."""
        if self._sink is None or self._sink.policy is not Policy.KEEP:
            await self._read()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._deliver_until_read)
                await self._read()
        self.close()

    async def _read(self) -> None:
        delivers = self._sink is not None and self._sink.policy is not Policy.KEEP
        while True:
            room = READ_BYTES if self._filter is None else min(READ_BYTES, self._filter.room)
            assert room > 0, "what could be delivered was, and a frame that never fits was refused"
            try:
                data = os.read(self._reader, room)
            except BlockingIOError:
                if self._is_over:
                    self.is_held = True
                    break
                with anyio.CancelScope() as self._waiting:
                    await anyio.wait_readable(self._reader)
                self._waiting = None
                continue
            if not data:
                break
            self._take(data)
            if delivers:
                await self._deliver()
            await anyio.lowlevel.checkpoint()
        if self._filter is not None:
            self._filter.end()
        self._is_read = True
        if delivers:
            await self._deliver()
        self._tell()

    def _take(self, data: bytes) -> None:
        if self._also is not None:
            self._also(data)
        if self._keeps_tail:
            self.tail.add(data)
        else:
            self.tail.total_bytes += len(data)
        if self._filter is not None:
            self._filter.feed(data)
            self._tell()

    async def _deliver(self) -> None:
        """What the filter holds in whole frames."""
        assert self._filter is not None and self._sink is not None
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

    async def _deliver_until_read(self) -> None:
        while not self._is_read:
            changed = self._changed
            await self._deliver()
            if not self._is_read:
                await changed.wait()
        await self._deliver()

    def _tell(self) -> None:
        """There is something to deliver, or nothing will come any more."""
        self._changed.set()
        self._changed = anyio.Event()
