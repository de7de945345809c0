"""A user who looks at somebody else's broker: what concerns a client of it, and nothing that is its owner's.

To a guest the state directory is closed, as it should be. What he can find out is whether he gets in, who
answers, and what that broker says of itself.
"""

import os
import stat
from collections.abc import Callable, Iterator

from ..broker.refusals import DirectoryUnusableError, NetworkFileSystemError, StartRefusedError
from .directory import CHECK as DIRECTORY_CHECK
from .directory import is_directory
from .finding import Finding, Level
from .listening import ABANDONED, CHECK, Listening, ask, check_broker


def host_of(socket: str, data: str, uid: int) -> int | None:
    """The one other user whose broker this is; None if it is this user's, or would be, or this is root."""
    if uid == 0:
        return None
    owners = {_owner(socket, stat.S_ISSOCK), _owner(data, stat.S_ISDIR)} - {None}
    return owners.pop() if len(owners) == 1 and uid not in owners else None


def _owner(path: str, is_kind: Callable[[int], bool]) -> int | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_uid if is_kind(status.st_mode) else None


def check_guest(socket: str, host: int, found: Listening) -> Iterator[Finding]:
    """What is to be found out without being `host`."""
    what = f"the broker is uid {host}'s, and this user (uid {os.geteuid()}) is a client of it"
    advice = f"for its directory and its journal run this as uid {host} or as root"
    yield Finding(Level.NOTE, DIRECTORY_CHECK, what, advice)
    yield from _check_way(os.path.dirname(socket) or ".", host)
    yield _check_door(socket, host, found)
    if found.is_there:
        yield from check_broker(ask(socket), None)


def _check_way(directory: str, host: int) -> Iterator[Finding]:
    if _owner(directory, stat.S_ISDIR) == os.geteuid():
        # Nobody could stand in for a broker there but this user himself.
        return
    try:
        is_directory(directory, host)
    except (DirectoryUnusableError, NetworkFileSystemError):
        # Whether its owner's broker could use it is not this user's to mend.
        return
    except (StartRefusedError, OSError) as error:
        yield Finding(
            Level.WARNING, CHECK, str(error), "somebody could stand in for that broker: tell its owner"
        )


def _check_door(path: str, host: int, found: Listening) -> Finding:
    if found.is_there and found.uid in (host, 0):
        return Finding(Level.OK, CHECK, f"{path}: pid {found.pid} of uid {found.uid} listens there")
    if found.is_there:
        what = f"{path}: pid {found.pid} listens there and runs as uid {found.uid}, not as uid {host}"
        return Finding(Level.ERROR, CHECK, what, "do not give it anything; tell the owner")
    if not found.trouble:
        advice = "have it started, or name its socket with --socket"
        return Finding(Level.ERROR, CHECK, f"{path}: is not there: no broker listens", advice)
    if found.trouble == ABANDONED:
        return Finding(Level.ERROR, CHECK, f"{path}: {found.trouble}", "have it started")
    return Finding(
        Level.ERROR,
        CHECK,
        f"{path}: {found.trouble}",
        "whom a broker lets in is for its owner to say, by socket_mode, socket_group and [access]",
    )
