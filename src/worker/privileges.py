"""Giving up root for good: a pool that root starts becomes another user before it does anything else.

The order matters: groups first, while it still may; the user last, because that takes the right to
change anything. Real, effective and saved numbers are all set, so there is no way back, and that is
tried: a process that could become root again, whatever capabilities or bits its starter left it, must
not run an app. Nothing of the app is imported and nothing is connected before.

The kernel takes a process that changes its user for one with secrets of the old one and gives its
files in /proc to root. There are none here, and the supervisor writes its own name there, so that is
undone. The other thing it undoes is the signal at the parent's death, which whoever wants it has to ask
for again.
"""

import ctypes
import os
import pwd
import sys
from typing import NamedTuple

from ..config.people import gid_of, uid_of

_PR_SET_DUMPABLE = 4


class PrivilegeError(Exception):
    """The process cannot become that user, or not for good; it is not to go on."""


class Identity(NamedTuple):
    """Who to become."""

    uid: int
    gid: int
    groups: frozenset[int]
    """Supplementary ones; the main one is among them."""
    home: str
    name: str
    """Empty for a number that no user has."""


def identity_of(user: str, group: str | None) -> Identity:
    """From names or numbers; without a group the user's own. PrivilegeError says what is wrong."""
    try:
        uid = uid_of(user)
        gid = None if group is None else gid_of(group)
    except ValueError as error:
        raise PrivilegeError(str(error)) from None
    if uid == 0:
        raise PrivilegeError("root keeps every privilege; name another user, or none")
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        if gid is None:
            raise PrivilegeError(f"no user has the number {uid}, so a group must be named too") from None
        return Identity(uid, gid, frozenset({gid}), "/", "")
    gid = entry.pw_gid if gid is None else gid
    groups = frozenset(os.getgrouplist(entry.pw_name, gid))
    return Identity(uid, gid, groups, entry.pw_dir, entry.pw_name)


def drop(user: str, group: str | None) -> None:
    """Become this user for good. PrivilegeError if that cannot be: the process must end then."""
    identity = identity_of(user, group)
    if os.geteuid() != 0:
        raise PrivilegeError(
            f"only root can become user {user}; start the pool as {user}, without naming one"
        )
    try:
        os.setgroups(sorted(identity.groups))
        os.setresgid(identity.gid, identity.gid, identity.gid)
        os.setresuid(identity.uid, identity.uid, identity.uid)
    except OSError as error:
        raise PrivilegeError(
            f"cannot become user {user}: {error.strerror}; root needs CAP_SETUID and CAP_SETGID for it"
        ) from None
    _check(identity)
    _check_reach(user)
    _set_environment(identity)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _check(identity: Identity) -> None:
    is_whole = (
        set(os.getresuid()) == {identity.uid}
        and set(os.getresgid()) == {identity.gid}
        and {*os.getgroups(), identity.gid} == {*identity.groups, identity.gid}
    )
    if not is_whole:
        raise PrivilegeError(f"did not become uid {identity.uid} with gid {identity.gid} and nothing else")
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        return
    raise PrivilegeError(f"uid {identity.uid} could become root again, by capabilities that it kept")


def _check_reach(user: str) -> None:
    # The zygote is another program: without this the pool would fail to start it, for ever.
    for path, mode in ((sys.executable, os.X_OK), (__file__, os.R_OK)):
        if not os.access(path, mode):
            raise PrivilegeError(f"user {user} may not use {path}; install Python and stoker where it can")


def _set_environment(identity: Identity) -> None:
    os.environ["HOME"] = identity.home
    for name in ("USER", "LOGNAME"):
        if identity.name:
            os.environ[name] = identity.name
        else:
            os.environ.pop(name, None)
