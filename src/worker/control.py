"""What supervisor and zygote say to each other, over a socketpair that keeps messages whole.

One packet is one message: msgpack of `[name, fields...]`, and at most one descriptor with it. Both
ends are of one release and trust each other; the socketpair has no name and nobody else holds it.
"""

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from ..config.logline import LOGFMT
from ..proto import limits

if TYPE_CHECKING:
    from resource import struct_rusage

_FD = struct.Struct("@i")

PACKET_BYTES_MAX = 128 * 1024
"""Below the default size of a socket's buffer, so that a packet always fits."""

KINDS_A_PACKET = 64
"""A kind with its policy and the longest names takes about 500 bytes."""

FILES_A_PACKET = 24
"""A path has at most 4096 bytes."""


# --- to the zygote --------------------------------------------------------------------------------


class Start(NamedTuple):
    """First: which app (`module:name`), and what workers need to reach the broker."""

    target: str
    socket: str
    ticket: bytes
    name: str
    memory_max: int = 0
    """Bytes a job may take if its kind says nothing; 0: no limit."""
    scratch: str = ""
    """Where workers make their temporary directories; nowhere if empty."""
    queues: Sequence[Sequence[Any]] = ()
    """`[name, weight]` of the queues that workers take jobs from; none: all."""
    attributed: bool = True
    capture_bytes: int = 0
    log_format: str = LOGFMT
    """These three are `output.OutputRules`."""
    watch: bool = False
    """Say which files were imported."""
    commands: Sequence[str] | None = None
    """Programs that jobs may run, by absolute path; none of them: every program. None: no jobs are programs."""
    data: bytes = b""
    """The state directory, in which files of what they say are kept; empty if it is not known."""
    low_water_bytes: int = 0
    """They are not written when less than this is free there."""
    prefetch: int = 0
    """Jobs that a worker of plain functions takes ahead of the one that it runs."""


class Fork(NamedTuple):
    """Make a worker of a flavour, for so many jobs at once. Its start page comes with the packet."""

    nonce: str
    flavour: str
    slots: int


# --- to the supervisor ------------------------------------------------------------------------------


class Kinds(NamedTuple):
    """Some of the kinds the app knows; all have come before `Ready`."""

    kinds: Sequence[Mapping[str, Any]]


class Files(NamedTuple):
    """Some of the app's own files, before `Ready` or `Failed`."""

    paths: Sequence[str]


class Ready(NamedTuple):
    """The app is imported.

    `threads` are those it started: a fork copies their locks without them. `flavours` are those of its
    handlers. `digest` is of its own files.
    """

    threads: Sequence[str]
    flavours: Sequence[str]
    digest: str


class Failed(NamedTuple):
    """The app cannot be imported. The zygote ends."""

    reason: str
    report: str


class Forked(NamedTuple):
    """A worker was born. Its pidfd comes with the packet, opened before its pid could be reused."""

    nonce: str
    pid: int


class Unforked(NamedTuple):
    """No worker was made."""

    nonce: str
    reason: str


class Exited(NamedTuple):
    """A worker was reaped."""

    nonce: str
    status: int | None
    signal: int | None
    memory_peak_bytes: int
    cpu_ms: int


def exited(nonce: str, status: int, usage: "struct_rusage") -> Exited:
    """From what `wait4` says."""
    code = os.waitstatus_to_exitcode(status)
    return Exited(
        nonce,
        code if code >= 0 else None,
        -code if code < 0 else None,
        usage.ru_maxrss * limits.KIB,
        round((usage.ru_utime + usage.ru_stime) * limits.SECOND_MS),
    )


Message = Start | Fork | Kinds | Files | Ready | Failed | Forked | Unforked | Exited

_CLASSES: dict[str, type[Message]] = {
    cls.__name__: cls for cls in (Start, Fork, Kinds, Files, Ready, Failed, Forked, Unforked, Exited)
}


def pack(message: Message) -> bytes:
    """One packet."""
    data: bytes = msgpack.packb([type(message).__name__, *message])
    return data


def unpack(data: bytes) -> Message:
    """The message of one packet."""
    name, *fields = msgpack.unpackb(data)
    return _CLASSES[name](*fields)


def send(sock: socket.socket, message: Message, fd: int | None = None) -> None:
    """Send one message, and a descriptor with it, which stays the caller's own too."""
    socket.send_fds(sock, [pack(message)], [] if fd is None else [fd])


def receive(sock: socket.socket) -> tuple[Message, int | None] | None:
    """The next message and the descriptor that came with it; None when the other end is closed."""
    # Not `socket.recv_fds`: it forgets its flags, and what it gives is inherited over exec.
    data, ancillary, _, _ = sock.recvmsg(PACKET_BYTES_MAX, socket.CMSG_LEN(_FD.size), socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    return unpack(data), _FD.unpack(ancillary[0][2])[0] if ancillary else None
