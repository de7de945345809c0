"""Who may do what: roles by the user that connected, and the groups it was in.

The kernel says who a peer is (`SO_PEERCRED`, `SO_PEERGROUPS`), frozen at the moment of `connect`: a
connection is a capability of the user that made it. Numbers are compared, never names, and nothing the
peer itself said takes part. `proto.ops` says which op needs which role.

Root and the broker's own user may do everything, always: both could change the journal's files as
well. Others may do what the configuration gives to them or to a group of theirs, and nothing else.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Collection
from typing import NamedTuple

from ..config.people import NOBODY, OVERFLOW_ID, People
from ..proto.model import Role

EVERYTHING = frozenset(Role)
NOTHING: frozenset[Role] = frozenset()

SUBMIT_ROLES = frozenset({Role.SUBMIT})
WORK_ROLES = frozenset({Role.WORK, Role.SUPERVISE})
"""Of a pool, which is a supervisor and its workers."""

ADMIN_ROLES = frozenset({Role.ADMIN, Role.SUBMIT})

OVERFLOW_UID = OVERFLOW_ID
"""What the kernel shows for every uid that this user namespace does not know: it is not one user."""

_SO_PEERGROUPS = 59
"""Since Linux 4.13; Python has no name for it yet."""

_PYTHON_BYTES_MAX = 1024
"""The longest value that Python's `getsockopt` can take."""

_CREDENTIALS = struct.Struct("3i")
_GID_BYTES = 4


class Credentials(NamedTuple):
    """Of the process that connected. `pid` is 0 if it is outside our PID namespace."""

    pid: int
    uid: int
    gid: int


class Grants(NamedTuple):
    """What is given to others than root and the broker's own user."""

    submit: People = NOBODY
    work: People = NOBODY
    admin: People = NOBODY

    @property
    def names_groups(self) -> bool:
        """Some group is given something, so the groups of a peer matter."""
        return any(people.gids for people in self)

    @property
    def names_anybody(self) -> bool:
        """Somebody is given something."""
        return any(people.uids or people.gids for people in self)


NO_GRANTS = Grants()


def peer_credentials(connection: socket.socket) -> Credentials:
    """What the kernel noted at `connect`; OSError if it will not say."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    # A uid is unsigned; -1 is "none" and must not turn into a valid number.
    return Credentials(pid, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)


def peer_groups(connection: socket.socket) -> frozenset[int]:
    """The supplementary groups that the peer had at `connect`; OSError if the kernel will not say."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _PYTHON_BYTES_MAX)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        raw = _many_groups(connection)
    return frozenset(struct.unpack(f"{len(raw) // _GID_BYTES}I", raw))


def _many_groups(connection: socket.socket) -> bytes:
    """The same without Python's limit. The kernel says how much room it wants, and nothing changes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_uint32(0)
    buffer = ctypes.create_string_buffer(0)
    for _ in range(2):
        if (
            libc.getsockopt(
                connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, buffer, ctypes.byref(size)
            )
            == 0
        ):
            return buffer.raw[: size.value]
        buffer = ctypes.create_string_buffer(size.value)
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def why_nothing(peer: Credentials) -> tuple[str, dict[str, str]]:
    """Why a peer has no role, for people, and what to know about it besides.

    No setting helps against a namespace, so it is said: root of another one would be told to be root.
    """
    if peer.uid == OVERFLOW_UID:
        text = f"uid {OVERFLOW_UID} stands for any user that the broker's user namespace does not know"
        return f"{text}; run this in the namespace of the broker", {"namespace": "user"}
    if peer.pid == 0:
        text = f"this process (uid {peer.uid}) is in a PID namespace that the broker cannot look into"
        return f"{text}; run it in the broker's, or run the broker in one above both", {"namespace": "pid"}
    return f"uid {peer.uid} has no role here", {}


def roles(
    peer: Credentials, own_uid: int, grants: Grants = NO_GRANTS, groups: Collection[int] = ()
) -> frozenset[Role]:
    """What a peer may do. `groups` are its supplementary ones.

    The overflow uid stands for strangers of other user namespaces, and pid 0 for those of other PID
    namespaces, whom no pidfd could watch: neither is ever granted anything. The same holds for groups.
    """
    if peer.uid == OVERFLOW_UID or peer.pid == 0:
        return NOTHING
    if peer.uid in (own_uid, 0):
        return EVERYTHING
    gids = {peer.gid, *groups} - {OVERFLOW_ID}
    given = set[Role]()
    for people, each in (
        (grants.submit, SUBMIT_ROLES),
        (grants.work, WORK_ROLES),
        (grants.admin, ADMIN_ROLES),
    ):
        if peer.uid in people.uids or not gids.isdisjoint(people.gids):
            given |= each
    return frozenset(given)
