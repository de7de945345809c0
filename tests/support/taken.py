"""What a function for output was given, and functions that are slow to take it."""

import hashlib

import anyio

from stoker.worker.commands.filter import Gap


class Taken:
    """Its `take` is for `run`; so is `lost`. Frames and gaps stay in `all`, in their order."""

    def __init__(self) -> None:
        self.all: list[bytes | Gap] = []

    async def take(self, frame: bytes) -> None:
        self.all.append(frame)

    async def lost(self, gap: Gap) -> None:
        self.all.append(gap)

    @property
    def frames(self) -> list[bytes]:
        return [each for each in self.all if not isinstance(each, Gap)]

    @property
    def text(self) -> bytes:
        return b"".join(self.frames)

    @property
    def lost_bytes(self) -> int:
        return sum(each.bytes for each in self.all if isinstance(each, Gap))


class Counted:
    """Keeps nothing: how much there was, how often, and of framed output what different frames."""

    def __init__(self) -> None:
        self.bytes = 0
        self.count = 0
        self.kinds = set[bytes]()
        self.lost_bytes = 0
        self.hash = hashlib.sha256()

    async def take(self, frame: bytes) -> None:
        self.bytes += len(frame)
        self.count += 1

    async def sort(self, frame: bytes) -> None:
        """For few different frames."""
        await self.take(frame)
        self.kinds.add(frame)

    async def digest(self, chunk: bytes) -> None:
        """With their digest."""
        await self.take(chunk)
        self.hash.update(chunk)

    async def lost(self, gap: Gap) -> None:
        self.lost_bytes += gap.bytes


class Stuck:
    """Takes one frame and never comes back, until it is let go."""

    def __init__(self) -> None:
        self.has_begun = anyio.Event()
        self.may_go = anyio.Event()
        self.was_cancelled = False
        self.count = 0

    async def take(self, frame: bytes) -> None:
        self.count += 1
        self.has_begun.set()
        try:
            if not self.may_go.is_set():
                await self.may_go.wait()
        except anyio.get_cancelled_exc_class():
            self.was_cancelled = True
            raise
