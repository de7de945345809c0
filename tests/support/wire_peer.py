"""A raw peer of the broker on a Unix socket: writes what it is told, reads what comes, on Trio.

For tests of the broker's shell, which care about bytes and connections; the real client has tests
of its own. Every wait has a deadline.
"""

import select
import socket
from typing import Any, Self

import msgpack
import trio

from stoker.proto import frames
from stoker.proto.messages import ERROR
from stoker.proto.ops import BY_MESSAGE

DEADLINE_S = 5.0


def frame(*values: Any) -> bytes:
    """One frame of an array."""
    body: bytes = msgpack.packb(values)
    return frames.header(len(body)) + body


class WirePeer:
    """One connection."""

    def __init__(self, connected: trio.socket.SocketType) -> None:
        self.socket = connected
        self._buffer = bytearray()
        self._requests = 0

    @classmethod
    async def connect(cls, path: str) -> Self:
        connected = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await connected.connect(path)
        return cls(connected)

    async def send(self, data: bytes) -> None:
        """All of these bytes."""
        with trio.fail_after(DEADLINE_S):
            while data:
                data = data[await self.socket.send(data) :]

    async def say(self, message: Any) -> int:
        """A request as a frame; its number."""
        self._requests += 1
        await self.send(frame(BY_MESSAGE[type(message)].number, self._requests, *message))
        return self._requests

    async def receive(self) -> list[Any]:
        """The next frame."""
        while len(self._buffer) < 4 or len(self._buffer) < 4 + self._announced():
            await self._more()
        end = 4 + self._announced()
        body = bytes(self._buffer[4:end])
        del self._buffer[:end]
        array: list[Any] = msgpack.unpackb(body)
        return array

    def _announced(self) -> int:
        return int.from_bytes(self._buffer[:4], "big")

    async def _more(self) -> None:
        with trio.fail_after(DEADLINE_S):
            data = await self.socket.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data

    @property
    def has_word(self) -> bool:
        """Something has come that was not received yet, or the end of the connection."""
        return bool(self._buffer or select.select([self.socket.fileno()], [], [], 0)[0])

    async def ask(self, message: Any) -> list[Any]:
        """Say it, and wait for the answer to it: `[0, number, fields...]` or `[1, number, code, ...]`."""
        number = await self.say(message)
        while (array := await self.receive())[1] != number:
            continue
        return array

    async def line(self) -> bytes:
        """The next line, without its end."""
        while b"\n" not in self._buffer:
            await self._more()
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return line

    async def until_closed(self) -> bytes:
        """Everything up to the end of file; a reset is an end too."""
        try:
            while True:
                await self._more()
        except (EOFError, ConnectionResetError):
            data = bytes(self._buffer)
            self._buffer.clear()
            return data

    async def refusal(self) -> str:
        """The code word of the error that the broker closes the connection with."""
        array = msgpack.unpackb((await self.until_closed())[4:])
        assert array[0] == ERROR, array
        return str(array[2])

    def close(self) -> None:
        self.socket.close()
