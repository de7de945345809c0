"""What the kernel offers: how surely a death is noticed, and how surely a job's processes are found.

stoker runs without any of these, and then falls back to what is told here.
"""

import os
import socket
from collections.abc import Iterator
from typing import NamedTuple

from .finding import Finding, Level

CHECK = "kernel"

_SO_PEERPIDFD = 77
_SO_PASSRIGHTS = 83
_CGROUPS = "/sys/fs/cgroup"
_USER_NAMESPACES_MAX = "/proc/sys/user/max_user_namespaces"


class Features(NamedTuple):
    """What works here."""

    release: str
    pidfd: bool
    peer_pidfd: bool
    pass_rights: bool
    cgroup_writable: bool
    user_namespaces: bool


def features() -> Features:
    """Tried out, where trying is harmless."""
    return Features(
        os.uname().release,
        _has_pidfd(),
        _has_peer_pidfd(),
        _has_pass_rights(),
        _is_cgroup_writable(),
        _has_user_namespaces(),
    )


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _has_peer_pidfd() -> bool:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        try:
            os.close(ours.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
        except OSError:
            return False
    return True


def _has_pass_rights() -> bool:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        try:
            ours.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        except OSError:
            return False
    return True


def _is_cgroup_writable() -> bool:
    """Whether this process could make groups below its own, by cgroup v2."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            own = next((line[3:].strip() for line in file if line.startswith("0::")), None)
    except OSError:
        return False
    if own is None or not os.path.exists(f"{_CGROUPS}/cgroup.controllers"):
        return False
    return os.access(os.path.join(_CGROUPS, own.lstrip("/")), os.W_OK)


def _has_user_namespaces() -> bool:
    try:
        with open(_USER_NAMESPACES_MAX, encoding="ascii") as file:
            return int(file.read()) > 0
    except (OSError, ValueError):
        return False


def check_kernel(found: Features) -> Iterator[Finding]:
    missing = [
        finding
        for has, finding in (
            (
                found.pidfd,
                Finding(
                    Level.ERROR,
                    CHECK,
                    "there is no pidfd_open (or a filter of system calls forbids it)",
                    "stoker needs Linux 5.4 or later, and system calls for pidfds allowed",
                ),
            ),
            (
                found.peer_pidfd,
                Finding(
                    Level.NOTE,
                    CHECK,
                    "there is no SO_PEERPIDFD (Linux 6.5): a peer that ends as it connects, or is in another "
                    "PID namespace, is known dead only by its silence",
                ),
            ),
            (
                found.pass_rights,
                Finding(
                    Level.NOTE,
                    CHECK,
                    "there is no SO_PASSRIGHTS (Linux 6.16): descriptors that a peer sends unasked wait in "
                    "its socket until it is read",
                ),
            ),
            (
                found.cgroup_writable,
                Finding(
                    Level.NOTE,
                    CHECK,
                    "no writable cgroup v2: what jobs start is found by parentage, session and environment",
                    "run the pool as a unit of its own, and all of it ends with the unit",
                ),
            ),
            (
                found.user_namespaces,
                Finding(Level.NOTE, CHECK, "there are no user namespaces: PrivateUsers= cannot be used"),
            ),
        )
        if not has
    ]
    yield from missing
    if not any(finding.level is Level.ERROR for finding in missing):
        yield Finding(Level.OK, CHECK, f"Linux {found.release} has what stoker needs")
