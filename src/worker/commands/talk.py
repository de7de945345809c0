"""What a worker and its sentinels say to each other, over a Unix stream socket between them.

    worker     START program, with its descriptors 0 to 2      END grace in ms
    sentinel   STARTED pid      FAILED errno, what, text       ENDED see `Ended`

Frames as on the wire: a number for the kind of message, one that is not used, fields. Each side knows what the
other is, and a program was checked when it was made, so nothing is checked here.
"""

import socket
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...proto import codec, limits
from ...proto.frames import FrameReader
from .program import Program

START, END, STARTED, FAILED, ENDED = range(5)

STREAMS = 3
"""Descriptors that a program gets."""

_ROOM = socket.CMSG_SPACE(STREAMS * array("i").itemsize)


class End(NamedTuple):
    """End the program: TERM to its whole tree, and KILL to what is left after the grace."""

    grace_ms: int


class Started(NamedTuple):
    """It runs."""

    pid: int


class Failed(NamedTuple):
    """It could not be started."""

    errno: int
    """0 if it was not for the kernel's sake."""
    text: str
    """What was wrong with what."""


class Ended(NamedTuple):
    """Nothing of it is left, or `is_gone` is false."""

    status: int | None
    """Its exit status; None if a signal ended it, or if nobody knows."""
    signal: int | None
    memory_peak_bytes: int
    """Of the largest process of its tree."""
    cpu_ms: int
    """Of all processes of its tree."""
    left_count: int
    """Processes that it left behind and that had to be killed."""
    is_gone: bool


_KINDS: dict[int, type[Any]] = {END: End, STARTED: Started, FAILED: Failed, ENDED: Ended}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}

Message = Program | End | Started | Failed | Ended


def encode(message: Message) -> bytes:
    """One frame."""
    if isinstance(message, Program):
        env, kept = list(message.env.items()), list(message.limits.items())
        fields = [list(message.argv), message.directory, env, message.umask, kept, message.oom_score_adj]
        return codec.encode([START, 0, *fields])
    return codec.encode([_NUMBERS[type(message)], 0, *message])


def decode(body: bytes) -> Message:
    """What a frame says."""
    # What may be on a command line is for the kernel to say, and a hundred thousand short arguments may.
    kind, _, *fields = codec.decode(body, limits.FRAME_BYTES_MAX)
    if kind == START:
        argv, directory, env, umask, kept, oom_score_adj = fields
        return Program(argv, directory, dict(env), umask, dict(kept), oom_score_adj)
    message: Message = _KINDS[kind](*fields)
    return message


def send(end: socket.socket, data: memoryview, descriptors: Sequence[int]) -> int:
    """One write, with descriptors; how much of it was taken. OSError and no signal if nobody is there."""
    # Not `socket.send_fds` for the same reason as below.
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
    return end.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)


def receive(end: socket.socket, bytes_max: int) -> tuple[bytes, list[int]]:
    """One read, and the descriptors that came with it, at most `STREAMS`."""
    # Not `socket.recv_fds`: it forgets its flags, and what it gives is inherited over exec.
    data, ancillary, _, _ = end.recvmsg(bytes_max, _ROOM, socket.MSG_CMSG_CLOEXEC)
    descriptors = array("i")
    for _, _, raw in ancillary:
        descriptors.frombytes(raw[: len(raw) - len(raw) % descriptors.itemsize])
    return data, descriptors.tolist()


class Channel:
    """One end of the socket. Messages in their order, with the descriptors that came with them."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._reader = FrameReader()
        self._descriptors: list[int] = []

    def send(self, *messages: Message, descriptors: Sequence[int] = ()) -> None:
        """Say them, one after the other. OSError if nobody is there any more."""
        data = memoryview(b"".join(map(encode, messages)))
        if descriptors:
            data = data[send(self.socket, data, descriptors) :]
        if data:
            self.socket.sendall(data, socket.MSG_NOSIGNAL)

    def receive(self) -> bool:
        """Read once what there is; False at the end. BlockingIOError if there is nothing and it must not wait."""
        data, descriptors = receive(self.socket, limits.READ_BYTES)
        self._descriptors += descriptors
        self._reader.feed(data)
        return bool(data)

    def next(self) -> Message | None:
        """The next whole message of what was read."""
        body = self._reader.next_frame()
        return None if body is None else decode(body)

    def take_descriptors(self) -> list[int]:
        """Those that came with the last message: the caller's from now on."""
        taken, self._descriptors = self._descriptors, []
        return taken
