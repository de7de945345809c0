"""A worker's sentinels: programs started through them, and how those ended.

Sentinels are kept for the next program when one has ended, so there are as many as programs ever ran at once.
The nursery that forks them is started with the first program (or before, by `warm`), and again should it die.
Works in a Trio and in an asyncio loop; nothing here blocks it.
"""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import anyio

from .program import Program
from .talk import STREAMS, Channel, End, Ended, Failed, Message, Started, encode, send

CLOSE_MS = 100
"""How long closing waits for the nursery; it has seconds for itself, and the supervisor sees to the rest."""


class StartError(Exception):
    """The program could not be started; the text names errno and what it was about."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.errno = number


class SentinelLostError(Exception):
    """The sentinel has died, and with it what there was to know of its program.

    The nursery has ended that meanwhile, unless it died as well.
    """


class Running:
    """One program that was started, and may have ended."""

    def __init__(self, owner: "Sentinels", channel: Channel) -> None:
        self._owner = owner
        self._channel = channel
        self.pid = 0
        self._ended: Ended | None = None
        self._is_held_up = False
        """Something could not be said at once, and may be waiting to be."""

    async def begin(self, program: Program, streams: Sequence[int]) -> Self:
        """Have it started. StartError, SentinelLostError."""
        # If nobody is there, why may have been said before.
        with suppress(SentinelLostError):
            await self._send(program, streams)
        message: Message | None = None
        while message is None:
            await self._readable()
            message = self._heard()
        if isinstance(message, Failed):
            self._owner.put_back(self._channel)
            raise StartError(message.errno, message.text)
        assert isinstance(message, Started), message
        self.pid = message.pid
        return self

    async def wait(self) -> Ended:
        """How it ended, once nothing of it is left. For one task at a time. SentinelLostError."""
        while (ended := self.look()) is None:
            await self._readable()
        return ended

    def look(self) -> Ended | None:
        """The same if it is known now; else `fileno` is readable when there is something new. SentinelLostError."""
        while self._ended is None and (message := self._heard()) is not None:
            if isinstance(message, Ended):
                self._ended = message
                if self._is_held_up:
                    # What waits is an `end`, on what is another program's from now on.
                    anyio.notify_closing(self._channel.socket)
                if message.is_gone:
                    self._owner.put_back(self._channel)
                else:
                    shut(self._channel.socket)
        return self._ended

    def fileno(self) -> int:
        """The descriptor of its sentinel, which may be somebody else's once it has ended."""
        return self._channel.socket.fileno()

    async def end(self, grace_ms: int) -> None:
        """Have it ended, with all that it started. `wait` tells when that is done."""
        await self._send(End(grace_ms))

    def abandon(self) -> None:
        """Nobody waits for it any more: it is killed, and its sentinel ends."""
        end = self._channel.socket
        if self._ended is None and end.fileno() >= 0:
            anyio.notify_closing(end)
            shut(end)

    async def _send(self, message: Message, streams: Sequence[int] = ()) -> None:
        end, data = self._channel.socket, memoryview(encode(message))
        # When it has ended its sentinel may be somebody else's. What is sent later than a start is sent at once
        # or not at all, so that this leaves no half of it.
        while data and self._ended is None:
            try:
                sent = send(end, data, streams)
            except BlockingIOError:
                self._is_held_up = True
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(end)
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.ECONNRESET) or end.fileno() < 0:
                    raise SentinelLostError(f"its sentinel is gone: {error.strerror}") from error
                raise
            else:
                data, streams = data[sent:], ()

    def _heard(self) -> Message | None:
        """The next message, if it is there."""
        while (message := self._channel.next()) is None:
            try:
                if not self._channel.receive():
                    raise ConnectionResetError(errno.ECONNRESET, "it was killed")
            except BlockingIOError:
                return None
            except OSError as error:
                self.abandon()
                raise SentinelLostError(f"its sentinel is gone: {error.strerror}") from error
        return message

    async def _readable(self) -> None:
        with suppress(anyio.ClosedResourceError):
            await anyio.wait_readable(self._channel.socket)


class Sentinels:
    """See the module. For one process; closed by `close`."""

    def __init__(self) -> None:
        self._idle: list[Channel] = []
        self._nursery: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._leaving: list[subprocess.Popen[bytes]] = []
        """Nurseries that may still be ending what they have."""

    def warm(self, count: int = 1) -> None:
        """Have so many ready."""
        while len(self._idle) < count:
            self._idle.append(self._fresh())

    async def start(self, program: Program, streams: Sequence[int]) -> Running:
        """Start a program with these as its descriptors 0 to 2, which stay the caller's.

        StartError if it cannot be; SentinelLostError; OSError if there can be no sentinel.
        """
        assert len(streams) == STREAMS
        channel = self._take_idle() or self._fresh()
        running = Running(self, channel)
        try:
            return await running.begin(program, streams)
        except BaseException as error:
            # A program that was started meanwhile ends with its sentinel.
            if not isinstance(error, StartError):
                running.abandon()
            raise

    def put_back(self, channel: Channel) -> None:
        """It has nothing to do any more."""
        if self._socket is None:
            shut(channel.socket)
        else:
            self._idle.append(channel)

    def close(self) -> None:
        """Let go of all of them. What still runs is killed when its `Running` is abandoned."""
        for channel in self._idle:
            shut(channel.socket)
        self._idle.clear()
        self._let_nursery_go()
        self._reap()

    def _take_idle(self) -> Channel | None:
        while self._idle:
            channel = self._idle.pop()
            try:
                channel.receive()
            except BlockingIOError:
                return channel
            except OSError:
                # As at the end of the stream: it was killed when it had nothing to do.
                pass
            channel.socket.close()
        return None

    def _fresh(self) -> Channel:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            with theirs:
                try:
                    send(self._line(), memoryview(b"\0"), [theirs.fileno()])
                except (BrokenPipeError, ConnectionResetError):
                    self._let_nursery_go()
                    send(self._line(), memoryview(b"\0"), [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        return Channel(ours)

    def _line(self) -> socket.socket:
        """To a nursery that lives, as far as anybody knows."""
        if self._socket is not None:
            return self._socket
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._nursery = subprocess.Popen(
                    [sys.executable, "-m", "stoker.worker.commands.nursery", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # A signal to the worker's group is not for it. It stays in its session, where it is found.
                    process_group=0,
                    env=dict(os.environ),
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        return ours

    def _let_nursery_go(self) -> None:
        if self._socket is None or self._nursery is None:
            return
        shut(self._socket)
        self._leaving.append(self._nursery)
        self._socket = self._nursery = None
        with suppress(subprocess.TimeoutExpired):
            self._leaving[-1].wait(CLOSE_MS / 1000)
        self._reap()

    def _reap(self) -> None:
        """Nurseries that were let go of, and have ended."""
        self._leaving = [each for each in self._leaving if each.poll() is None]


def shut(end: socket.socket) -> None:
    """Let the other side know that nobody is here, also if a process forked from this one has a copy."""
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
