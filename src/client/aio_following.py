"""`following` for programs with an event loop: the same words, with `async with` and `async for`."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio

from .aio_caller import AsyncCaller
from .following import POLL_S, FollowingBase, Piece, Reading

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class AsyncFollowing(FollowingBase):
    """The pieces of what a job's program writes, from what is held of it on. Iterate within `async with`.

    The iteration ends when the job is in a final state, which then is `state`.
    """

    def __init__(self, caller: AsyncCaller, reading: Reading) -> None:
        """`caller` is its own."""
        super().__init__(reading)
        self._caller = caller

    async def begin(self) -> None:
        """Count as a follower from here on, of a job that may be enqueued only afterwards. Nothing is missed then.

        It is tied only when it is read from: until then it may turn out to be somebody else's job.
        """
        await self._caller.ask(self._reading.request(0, awaited=True))

    async def read(self, timeout_s: float = POLL_S) -> list[Piece]:
        """What is new, as soon as there is something; nothing after so long, or at the end.

        Raises what any request raises; JobNotFoundError if there is no such job.
        """
        if self._has_read:
            await anyio.sleep(self._reading.pause_s)
        self._has_read = True
        pieces = self._reading.take(await self._caller.ask(self._reading.request(timeout_s)))
        if self.state is not None:
            self._caller.close()
        return pieces

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """Raises as `read` does."""
        while self.state is None:
            for piece in await self.read():
                yield piece

    async def aclose(self) -> None:
        """Follow no more."""
        self._caller.close()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        await self.aclose()
