"""The three streams of a program: its ends, as descriptors, and our ends of those that are pipes."""

import os
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from .sinks import Output
from .stream import Stream

Stdin = bytes | os.PathLike[str] | None
"""What a program reads: bytes, a file, or nothing. A named pipe that nobody has open for writing is nothing as well."""

_READS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY


class Feed:
    """What a program reads, if that is bytes: written into its pipe as it takes them."""

    def __init__(self, fd: int, data: memoryview) -> None:
        self._fd = fd
        self._data = data

    async def run(self) -> None:
        """Until it has taken all, or takes no more."""
        try:
            while self._data:
                try:
                    self._write()
                    # One that reads as quickly as this writes would have the loop for all of it.
                    await anyio.lowlevel.checkpoint()
                except BlockingIOError:
                    await anyio.wait_writable(self._fd)
        finally:
            self.close()

    def fileno(self) -> int:
        """Our end; -1 when it is closed."""
        return self._fd

    def push(self) -> bool:
        """For whoever waits for the descriptor himself: as much as it takes now; whether it may take more."""
        with suppress(BlockingIOError):
            self._write()
        return bool(self._data)

    def _write(self) -> None:
        try:
            self._data = self._data[os.write(self._fd, self._data) :]
        except BrokenPipeError:
            # It does not read all that there is, which is its right.
            self._data = self._data[:0]

    def close(self) -> None:
        """The end of what it can read."""
        if self._fd >= 0:
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = -1


class Streams:
    """See the module. OSError if there are not so many descriptors: then none of them is open any more."""

    def __init__(
        self,
        stdin: Stdin,
        stdout: Output,
        stderr: Output,
        said: tuple[Callable[[bytes], object] | None, Callable[[bytes], object] | None] = (None, None),
    ) -> None:
        """`said` are called with all that is read of stdout and of stderr, before it is filtered."""
        self.feed: Feed | None = None
        self._stdin = -1
        self._outputs: list[Stream] = []
        try:
            self._stdin = self._open_stdin(stdin)
            for output, also in zip((stdout, stderr), said, strict=True):
                self._outputs.append(Stream(output, also))
        except BaseException:
            self.close()
            raise
        self.stdout, self.stderr = self._outputs
        self.descriptors = (self._stdin, self.stdout.childs_end, self.stderr.childs_end)

    def _open_stdin(self, stdin: Stdin) -> int:
        if stdin is None or isinstance(stdin, os.PathLike):
            # A named pipe without a writer would be waited for here, by everybody in the loop. For the program it
            # blocks again: its sentinel sees to that.
            return os.open(os.devnull if stdin is None else stdin, _READS | os.O_NONBLOCK)
        data = memoryview(stdin).cast("B")
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        self.feed = Feed(writer, data)
        return reader

    def started(self) -> None:
        """The program has its ends, or never will."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        for stream in self._outputs:
            stream.started()

    def close(self) -> None:
        """All that is open still, of its ends and of ours."""
        self.started()
        if self.feed is not None:
            self.feed.close()
        for stream in self._outputs:
            stream.close()
