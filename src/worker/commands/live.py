"""What a program writes, on its way to those who follow it while it runs; and its end, for the record.

    add ──► held, of each stream its end ──► one chunk on its way ──► broker: taken, or nobody wants any
                └──► dropped, by which a follower sees a gap

Nothing is sent until somebody follows, which the broker says with the job or later. Then a chunk of each
stream is on its way at a time, and stays here until it has been taken: so the pace is that of the followers,
what is lost with a connection is sent again, and a flood is no more to the broker than a trickle. What comes
meanwhile:

    KEEP   the oldest is dropped; the program never waits
    BLOCK  nothing is dropped: the stream `is_full` and not to be read, so that the program waits in its write

After the loss of a connection nobody knows whether there are followers still, for they have lost theirs too.
With BLOCK nothing is sent then, to nobody, until the broker says again that somebody follows who wants all of it; if it
does not within RETURN_S, nobody does.

Does no I/O and knows no clock: `ask` sends a chunk and has its answer come back, `later` calls after a while.
"""

import math
from collections.abc import Callable
from functools import partial

import anyio

from ...proto import limits, messages, work
from ...proto.work import BLOCK
from ..startpage import Token
from ..tails import Tail

UNFOLLOWED_BYTES = limits.OUTPUT_BYTES_MAX
"""Held of each stream for somebody who begins to follow."""

FOLLOWED_BYTES = 256 * limits.KIB
"""Held of each stream while somebody follows: twice as much as is read at once."""

RETURN_S = 10.0
"""In which followers come back after a restart of the broker: a client tries for as long."""

LINGER_S = 1.0
"""How long the end of an attempt waits for followers who do not keep it waiting, so that they see its last words."""

Ask = Callable[[work.Output, Callable[[bool], None]], None]
"""Send a chunk; the function is called with whether anybody follows, if it is answered on this connection."""


class _Stream:
    """One stream: the end of it, and what of it has been taken."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.held = bytearray()
        self.start = 0
        """Offset of the first byte held."""
        self.next = 0
        """Offset of the first byte that was not taken."""
        self.is_flying = False
        """A chunk is on its way."""

    @property
    def end(self) -> int:
        return self.start + len(self.held)

    def add(self, data: bytes, bytes_max: int | None) -> None:
        """More of it; of what is held the oldest goes beyond twice `bytes_max`."""
        self.held += data
        if bytes_max is not None and len(self.held) > 2 * bytes_max:
            self.drop_before(self.end - bytes_max)

    def drop_before(self, offset: int) -> None:
        """Hold no more of it."""
        count = offset - self.start
        if count > 0:
            del self.held[:count]
            self.start = offset
            self.next = max(self.next, offset)

    def chunk(self) -> bytes:
        """What is to be sent next."""
        at = self.next - self.start
        return bytes(self.held[at : at + limits.OUTPUT_CHUNK_BYTES_MAX])


class LiveOutput:
    """See the module."""

    def __init__(
        self, token: Token, policy: str | None, ask: Ask, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        """`policy`: what the broker said with the job."""
        self.tail = Tail(limits.OUTPUT_BYTES_MAX)
        """The end of both streams, as they came."""
        self.has_room: Callable[[], object] = lambda: None
        """Called when a stream may be read that was full."""
        self._token = token
        self._ask = ask
        self._later = later
        self._policy = policy or ""
        self._is_connected = True
        self._awaits_lossless = False
        """Followers for whom nothing is dropped were there when the connection was lost, and may come back."""
        self._losses = 0
        self._is_ending = False
        self._streams = {number: _Stream(number) for number in (messages.STDOUT, messages.STDERR)}
        self._changed: anyio.Event | None = None
        """Set when a follower has taken something, or there is none any more."""

    # --- the program ---------------------------------------------------------------------------------

    def add(self, number: int, data: bytes) -> None:
        """It has written something."""
        self.tail.add(data)
        stream = self._streams[number]
        stream.add(data, self._bytes_max)
        if self._policy:
            self._send(stream)

    def is_full(self, number: int) -> bool:
        """The stream is not to be read now."""
        return self._blocks and len(self._streams[number].held) >= FOLLOWED_BYTES

    def end_soon(self) -> None:
        """It is being ended: it must not wait for anybody, nor anybody for it."""
        self._is_ending = True
        self.has_room()

    async def finish(self, within_s: float = math.inf) -> None:
        """It has ended: wait until followers have taken all, for as long as they may keep it waiting, and no longer than
        that. What they are too late for is told as a gap."""
        if not self._is_followed:
            return
        begun_s = anyio.current_time()
        with anyio.CancelScope() as scope:
            while self._is_followed and any(stream.next < stream.end for stream in self._streams.values()):
                scope.deadline = begun_s + (within_s if self._blocks else min(within_s, LINGER_S))
                changed = self._changed = anyio.Event()
                await changed.wait()
        for stream in self._streams.values():
            if self._is_followed and stream.next < stream.end:
                self._ask(work.Output(list(self._token), stream.number, stream.end, b""), lambda _: None)

    @property
    def _is_followed(self) -> bool:
        return bool(self._policy) or self._awaits_lossless

    @property
    def _blocks(self) -> bool:
        return (self._policy == BLOCK or self._awaits_lossless) and not self._is_ending

    @property
    def _bytes_max(self) -> int | None:
        if self._blocks:
            return None
        return FOLLOWED_BYTES if self._policy else UNFOLLOWED_BYTES

    # --- followers -----------------------------------------------------------------------------------

    def follow(self, policy: str) -> None:
        """Somebody follows, says the broker."""
        # Perhaps somebody new, who has not had what others had; these are not told anything twice.
        for stream in self._streams.values():
            stream.next = stream.start
        self._policy = policy
        self._awaits_lossless = self._awaits_lossless and policy != BLOCK
        self._go_on()

    def disconnected(self) -> None:
        """The connection is gone, and with it what was on its way."""
        for stream in self._streams.values():
            stream.is_flying = False
        self._is_connected = False
        if self._blocks and not self._awaits_lossless:
            self._awaits_lossless = True
            self._losses += 1
            self._later(RETURN_S, partial(self._give_up, self._losses))
        if self._awaits_lossless:
            self._policy = ""

    def connected(self) -> None:
        """There is a new one."""
        self._is_connected = True
        self._go_on()

    def _give_up(self, losses: int) -> None:
        if losses == self._losses:
            self._awaits_lossless = False
            self._go_on()

    def _unfollowed(self) -> None:
        self._policy = ""
        self._go_on()

    def _go_on(self) -> None:
        """Something has changed for all streams."""
        for stream in self._streams.values():
            self._send(stream)
        self.has_room()
        if self._changed is not None:
            self._changed.set()

    def _send(self, stream: _Stream) -> None:
        is_wanted = self._policy and self._is_connected and not self._awaits_lossless
        if not is_wanted or stream.is_flying or stream.next >= stream.end:
            return
        stream.is_flying = True
        offset, chunk = stream.next, stream.chunk()

        def answered(is_followed: bool) -> None:
            stream.is_flying = False
            if not is_followed:
                self._unfollowed()
                return
            if stream.next == offset:
                stream.next += len(chunk)
            if self._blocks:
                stream.drop_before(stream.next)
            self._go_on()

        self._ask(work.Output(list(self._token), stream.number, offset, chunk), answered)
