"""Reaching the broker's socket: what to say when that fails, and whether to trust who listens there.

Shared by the blocking and the asynchronous client, which each connect in their own way.
"""

import os
import socket
import stat
import struct

from ..proto.errors import BrokerUnreachableError

_UNMAPPED_UID = 65534
"""What the kernel shows for a uid that this user namespace does not know: it may be anybody."""


def absence(path: str, error: OSError) -> BrokerUnreachableError:
    """What a failed `connect` means, and what to do about it. Nothing was sent."""
    if isinstance(error, BlockingIOError):
        return _unreachable(path, "it does not accept connections (stopped or overloaded)")
    if isinstance(error, FileNotFoundError):
        return _unreachable(path, "there is no such socket; start a broker with `stoker up`")
    if isinstance(error, ConnectionRefusedError):
        if not _is_socket(path):
            return _unreachable(path, "that is no socket; name the broker's with --socket or STOKER_SOCKET")
        return _unreachable(path, "nobody listens there; start a broker with `stoker up`")
    if isinstance(error, PermissionError):
        return _unreachable(path, f"uid {os.geteuid()} may not connect; run as the broker's user")
    return _unreachable(path, why(error))


def check_peer(sock: socket.socket, path: str) -> None:
    """Refuse an impostor: whoever listens must be root, this user, or the owner of the directory."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("@iII"))
    _, uid, _ = struct.unpack("@iII", credentials)
    trusted: set[int | None] = {0, os.geteuid()}
    if uid not in trusted:
        trusted.add(_owner_of_directory(path))
    if uid not in trusted:
        raise _unreachable(path, f"the process there runs as uid {uid}, which is not trusted with jobs")


def why(error: OSError) -> str:
    """The system's own words."""
    return error.strerror or str(error)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        # Gone by now, or not to be looked at: what the kernel said is all there is.
        return True


def _owner_of_directory(path: str) -> int | None:
    try:
        owner = os.stat(os.path.dirname(os.path.realpath(path))).st_uid
    except OSError:
        return None
    return None if owner == _UNMAPPED_UID else owner


def _unreachable(path: str, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(f"no broker at {path}: {reason}")
