"""Following a job: what its program writes, piece by piece, while it runs.

A follower asks, is answered with what is new, and asks for what comes after that. So it needs no more of the
connection than any request, and a restart of the broker in between is one more repetition. It has a
connection of its own, because the broker knows it by that.

`Reading` keeps how much was had, without I/O; `Following` asks with it, and so does `aio_following`.
"""

from collections.abc import Iterator
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from ..proto import messages
from .caller import Caller

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

POLL_S = 20.0
"""A request that has seen nothing for so long is asked again: a broker that is gone is noticed by then."""


PAUSE_S = 0.02
"""Before the next request, if what was not had may be dropped: a flood is then no more than fifty of them a second."""


class Piece(NamedTuple):
    """What was written next on one stream: 1 is stdout, 2 stderr. `lost_bytes` before it nobody will see; if nothing
    came after them, `data` is empty."""

    stream: int
    data: bytes
    lost_bytes: int = 0


class Reading:
    """How much of a job's output was had, and what to ask next."""

    def __init__(self, id: str, *, lossless: bool, tied: bool) -> None:
        self.state: str | None = None
        """The final one, when there is no more."""
        self.attempt = 0
        """The newest one that has said anything."""
        self._id = id
        self._lossless = lossless
        self._tied = tied
        self.pause_s = 0.0 if lossless else PAUSE_S
        """Before the next request."""
        self._had = {messages.STDOUT: 0, messages.STDERR: 0}

    @property
    def had_bytes(self) -> int:
        """Of both streams of that attempt."""
        return sum(self._had.values())

    def request(self, timeout_s: float, *, awaited: bool = False) -> messages.Follow:
        """For what comes after all that was had."""
        return messages.Follow(
            self._id,
            self.attempt,
            self._had[messages.STDOUT],
            self._had[messages.STDERR],
            round(timeout_s * 1000),
            self._lossless,
            self._tied and not awaited,
            awaited,
        )

    def take(self, answer: messages.Followed) -> list[Piece]:
        """What is new in an answer."""
        self.state = answer.state
        if answer.attempt not in (0, self.attempt):
            self.attempt = answer.attempt
            self._had = dict.fromkeys(self._had, 0)
        pieces: list[Piece] = []
        for stream, offset, data in answer.pieces:
            lost_bytes = max(offset - self._had.get(stream, 0), 0)
            pieces.append(Piece(stream, data, lost_bytes))
            self._had[stream] = offset + len(data)
        return pieces


class FollowingBase:
    """What both kinds of client know of what they follow."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._has_read = False

    @property
    def state(self) -> str | None:
        """The final state, when the iteration has ended."""
        return self._reading.state

    @property
    def attempt(self) -> int:
        """The newest attempt that has said anything; 0 if none has."""
        return self._reading.attempt

    @property
    def had_bytes(self) -> int:
        """Of that attempt: so much was written of which all came or is known to be lost."""
        return self._reading.had_bytes


class Following(FollowingBase):
    """The pieces of what a job's program writes, from what is held of it on. Use as a context manager, and iterate.

    The iteration ends when the job is in a final state, which then is `state`.
    """

    def __init__(self, caller: Caller, reading: Reading) -> None:
        """`caller` is its own."""
        super().__init__(reading)
        self._caller = caller

    def begin(self) -> None:
        """Count as a follower from here on, of a job that may be enqueued only afterwards. Nothing is missed then.

        It is tied only when it is read from: until then it may turn out to be somebody else's job.
        """
        self._caller.ask(self._reading.request(0, awaited=True))

    def read(self, timeout_s: float = POLL_S) -> list[Piece]:
        """What is new, as soon as there is something; nothing after so long, or at the end.

        Raises what any request raises; JobNotFoundError if there is no such job.
        """
        if self._has_read:
            sleep(self._reading.pause_s)
        self._has_read = True
        pieces = self._reading.take(self._caller.ask(self._reading.request(timeout_s)))
        if self.state is not None:
            self._caller.close()
        return pieces

    def __iter__(self) -> Iterator[Piece]:
        """Raises as `read` does."""
        while self.state is None:
            yield from self.read()

    def close(self) -> None:
        """Follow no more."""
        self._caller.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        self.close()
