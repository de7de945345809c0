"""Who may do what: roles by the uid that connected.

The kernel says who a peer is (`SO_PEERCRED`), frozen at the moment of `connect`: a connection is a
capability of the uid that made it. Numbers are compared, never names, and nothing the peer itself
said takes part. `proto.ops` says which op needs which role.
"""

import socket
import struct
from typing import NamedTuple

from ..proto.model import Role

EVERYTHING = frozenset(Role)
NOTHING: frozenset[Role] = frozenset()

OVERFLOW_UID = 65534
"""What the kernel shows for every uid that this user namespace does not know: it is not one user."""

_CREDENTIALS = struct.Struct("3i")


class Credentials(NamedTuple):
    """Of the process that connected. `pid` is 0 if it is outside our PID namespace."""

    pid: int
    uid: int
    gid: int


def peer_credentials(connection: socket.socket) -> Credentials:
    """What the kernel noted at `connect`; OSError if it will not say."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    # A uid is unsigned; -1 is "none" and must not turn into a valid number.
    return Credentials(pid, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF)


def roles(peer: Credentials, own_uid: int) -> frozenset[Role]:
    """The same uid may do everything, so may root; nobody else may do anything.

    The overflow uid stands for strangers of other user namespaces, and pid 0 for those of other PID
    namespaces, whom no pidfd could watch: neither is ever granted anything.
    """
    if peer.uid == OVERFLOW_UID or peer.pid == 0:
        return NOTHING
    return EVERYTHING if peer.uid in (own_uid, 0) else NOTHING
