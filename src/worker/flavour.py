"""Flavours: what a worker runs its handlers in. Each kind has one, and a worker serves the kinds of its own.

plain     functions, one after the other, in the main thread (`sync_worker`)
trio      coroutine functions, many at once, in a Trio loop (`async_worker`)
asyncio   the same in an asyncio loop, for handlers that use libraries of that world
"""

from enum import StrEnum


class Flavour(StrEnum):
    """See the module."""

    PLAIN = "plain"
    TRIO = "trio"
    ASYNCIO = "asyncio"
