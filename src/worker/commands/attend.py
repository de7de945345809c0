"""One program whose output is only counted, bounded, and passed on as it comes: a single task sees to all of it.

`run` gives each stream a task of its own, because functions may take their time. Here nothing waits but for the
program. So its streams and its sentinel are watched through one epoll descriptor, and a program that is over in a
millisecond costs a few waits of the loop. What is ready is read once, then it is somebody else's turn.

In Trio, whose cancellation can be shielded from: when `attend` is left, also by a cancellation, nothing of the
program lives.
"""

import select
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import trio

from ...proto import limits, messages
from .files import OutputFiles
from .filter import OutputLimitError
from .live import LiveOutput
from .pace import OF_THIS_PROCESS
from .program import Program
from .sentinels import Running, SentinelLostError, Sentinels
from .sinks import DISCARD
from .stream import Stream
from .streams import Stdin, Streams
from .talk import Ended


class Attendance:
    """A program from its start to its end. `live` gets all that it writes, as it comes, and may be full."""

    def __init__(
        self,
        sentinels: Sentinels,
        program: Program,
        stdin: Stdin,
        live: LiveOutput,
        bytes_max: tuple[int | None, int | None] = (None, None),
        files: OutputFiles | None = None,
    ) -> None:
        """`bytes_max`: of stdout and of stderr, beyond which `attend` ends the program and raises OutputLimitError.
        `files` get what it writes as well, and stay the caller's to close."""
        self._sentinels = sentinels
        self._program = program
        self._live = live
        self._files = files
        add = live.add if files is None else self._add
        said = (partial(add, messages.STDOUT), partial(add, messages.STDERR))
        self._streams = Streams(stdin, DISCARD, DISCARD, said)
        self._naps: dict[Stream, float] = {}
        """Streams that are not read until then, for the sake of others."""
        self._full: dict[Stream, int] = {}
        """Streams that are not read for now, by their numbers."""
        self._bounded = dict(zip(self._outputs, bytes_max, strict=True))
        self.ended: Ended | None = None
        """How it ended; None if it never began, or nobody knows."""

    @property
    def _outputs(self) -> tuple[Stream, Stream]:
        return self._streams.stdout, self._streams.stderr

    @property
    def total_bytes(self) -> tuple[int, int]:
        """So much it has written to stdout and to stderr."""
        return self._streams.stdout.total_bytes, self._streams.stderr.total_bytes

    def held(self) -> Iterator[str]:
        """Names of streams that somebody else had open when it had ended."""
        named = zip(("stdout", "stderr"), self._outputs, strict=True)
        return (name for name, stream in named if stream.is_held)

    def _add(self, number: int, data: bytes) -> None:
        assert self._files is not None
        self._files.add(number, data)
        self._live.add(number, data)

    async def attend(self, grace: Callable[[], float]) -> Ended:
        """Run it until nothing of it is left. `grace`: seconds from TERM to KILL, asked when it is to be ended.

        StartError, SentinelLostError, OutputLimitError.
        """
        with closing(self._streams):
            running: Running | None = None
            # Broken off it would leave a program that nobody waits for.
            with trio.CancelScope(shield=True):
                running = await self._sentinels.start(self._program, self._streams.descriptors)
            assert running is not None
            self._streams.started()
            # Of one that was over in a moment that is told with its start, and all it wrote is in the pipes.
            self.ended = running.look()
            if self.ended is not None:
                self._read_rest()
            else:
                with select.epoll() as epoll, self._listening(epoll):
                    self._watch(epoll, running)
                    await self._see_to_the_end(epoll, running, grace)
            for stream in self._outputs:
                self._check_limit(stream)
        assert self.ended is not None
        return self.ended

    async def _see_to_the_end(
        self, epoll: select.epoll, running: Running, grace: Callable[[], float]
    ) -> None:
        try:
            self.ended = await self._await_end(epoll, running)
        finally:
            if self.ended is None:
                self._bounded.clear()
                self._live.end_soon()
                with trio.CancelScope(shield=True), suppress(SentinelLostError):
                    await running.end(round(grace() * limits.SECOND_MS))
                    self.ended = await self._await_end(epoll, running)
            self._read_rest()

    def _watch(self, epoll: select.epoll, running: Running) -> None:
        epoll.register(running.fileno(), select.EPOLLIN)
        for stream in self._outputs:
            epoll.register(stream.fileno(), select.EPOLLIN)
        if self._streams.feed is not None:
            epoll.register(self._streams.feed.fileno(), select.EPOLLOUT)

    async def _await_end(self, epoll: select.epoll, running: Running) -> Ended:
        while (ended := running.look()) is None:
            await self._ready(epoll)
            # That of its sentinel, if it is among them, is looked at next.
            for fd, _ in epoll.poll(0):
                self._serve(epoll, fd)
        return ended

    async def _ready(self, epoll: select.epoll) -> None:
        """Something is to be served, or a nap is over."""
        if not self._naps:
            await trio.lowlevel.wait_readable(epoll.fileno())
            return
        # It may be over already, which Trio takes for a mistake.
        with trio.move_on_after(max(0.0, min(self._naps.values()) - time.monotonic())):
            await trio.lowlevel.wait_readable(epoll.fileno())
        now_s = time.monotonic()
        for stream in [stream for stream, until_s in self._naps.items() if until_s <= now_s]:
            del self._naps[stream]
            epoll.register(stream.fileno(), select.EPOLLIN)

    def _serve(self, epoll: select.epoll, fd: int) -> None:
        feed = self._streams.feed
        if feed is not None and fd == feed.fileno() and not feed.push():
            epoll.unregister(fd)
            feed.close()
        for number, stream in enumerate(self._outputs, messages.STDOUT):
            if fd != stream.fileno():
                continue
            before = stream.total_bytes
            if self._live.is_full(number):
                # Not to be told of it at all: the end of a pipe is always told.
                epoll.unregister(fd)
                self._full[stream] = number
            elif not self._read(stream):
                epoll.unregister(fd)
            elif nap_s := OF_THIS_PROCESS.nap_s(stream.total_bytes - before):
                epoll.unregister(fd)
                self._naps[stream] = time.monotonic() + nap_s

    @contextmanager
    def _listening(self, epoll: select.epoll) -> Generator[None]:
        """While the block runs, streams that were full are read again when there is room."""

        def has_room() -> None:
            for stream, number in list(self._full.items()):
                if not self._live.is_full(number):
                    del self._full[stream]
                    epoll.register(stream.fileno(), select.EPOLLIN)

        self._live.has_room = has_room
        try:
            yield
        finally:
            self._live.has_room = lambda: None

    def _read(self, stream: Stream) -> bool:
        """Once; whether there may be more."""
        is_open = stream.read_once()
        self._check_limit(stream)
        return is_open

    def _check_limit(self, stream: Stream) -> None:
        bytes_max = self._bounded.get(stream)
        if bytes_max is not None and stream.total_bytes > bytes_max:
            raise OutputLimitError(f"output limit: more than {bytes_max} bytes")

    def _read_rest(self) -> None:
        """What is in the pipes now is all."""
        for stream in self._outputs:
            stream.over()
            stream.read_rest()
