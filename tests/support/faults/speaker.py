"""A peer that says messages and hears frames, on a blocking socket, and keeps the account of both.

It knows nothing of retries: when the broker dies it hears `LostError`, and the account says what has no
answer. Whatever the broker wrote before its death is still heard.
"""

import socket
from collections import deque
from itertools import count
from typing import Any

from stoker.proto import codec
from stoker.proto.frames import FrameReader
from stoker.proto.messages import ERROR, Message
from stoker.proto.ops import BY_MESSAGE
from stoker.proto.work import OPS, Job

from .account import Account

DEADLINE_S = 20.0
"""For one frame. Longer than any start of a broker; whoever waits so long has found a fault."""

_PUSHED_JOB = OPS[Job][0]


class LostError(Exception):
    """The connection has ended."""


class HaltedError(Exception):
    """The broker lives and does not go on: it refuses for want of space, or says nothing."""


class Speaker:
    """One connection. Request numbers are unique in a account, so that they tell who was answered."""

    def __init__(
        self, path: str, numbers: "count[int]", account: Account, patience_s: float = DEADLINE_S
    ) -> None:
        self._numbers = numbers
        self._account = account
        self._frames = FrameReader()
        self._pushed: deque[Job] = deque()
        self.numbers: set[int] = set()
        """Of everything that was said here."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(patience_s)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise LostError from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def say(self, *said: Message) -> list[int]:
        """Send these requests in one piece; their numbers."""
        numbers = [next(self._numbers) for _ in said]
        frames: list[bytes] = []
        for number, message in zip(numbers, said, strict=True):
            self.numbers.add(number)
            self._account.ask(number, message)
            frames.append(codec.encode((BY_MESSAGE[type(message)].number, number, *message)))
        try:
            self._socket.sendall(b"".join(frames))
        except (BrokenPipeError, ConnectionResetError) as error:
            # What the broker wrote before it died is still to be heard.
            self.hear_out()
            raise LostError from error
        return numbers

    def ask(self, *said: Message) -> list[list[Any]]:
        """Say them, and the frames that answer them."""
        numbers = self.say(*said)
        while not all(number in self._account.answers for number in numbers):
            self.hear()
        answers = [self._account.answers[number] for number in numbers]
        if any(array[0] == ERROR and array[2] == "storage_full" for array in answers):
            raise HaltedError("storage_full")
        return answers

    def take(self) -> Job:
        """The next job that is pushed here."""
        while not self._pushed:
            self.hear()
        return self._pushed.popleft()

    @property
    def has_jobs(self) -> bool:
        return bool(self._pushed)

    def hear(self) -> None:
        """At least one frame more. LostError at the end of the connection."""
        while (body := self._frames.next_frame()) is None:
            self._receive()
        while body is not None:
            array = codec.decode(body)
            self._account.hear(array)
            if array[0] == _PUSHED_JOB:
                self._pushed.append(Job(*array[2:]))
            body = self._frames.next_frame()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError as error:
            raise LostError from error
        except TimeoutError as error:
            raise HaltedError("nothing is said") from error
        if not data:
            raise LostError
        self._frames.feed(data)

    def hear_out(self) -> None:
        """Everything up to the end of the connection."""
        try:
            while True:
                self.hear()
        except LostError:
            return
