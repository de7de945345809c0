"""Whether a user may read and write a file or a directory, and what to do where he may not.

Of the user that this process runs as, the kernel is asked. Of another one, whom root looks after, the mode
has to tell: what root may says nothing about him.
"""

import os
import pwd
import stat
from typing import NamedTuple


class Hindrance(NamedTuple):
    """What is wrong with a path, and what to do about it."""

    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}"


def may(path: str, uid: int, wanted: int) -> bool:
    """Whether that user has these rights (`os.R_OK` and the like). The OSError of looking, if it is not there."""
    if uid == os.geteuid():
        return os.access(path, wanted, effective_ids=True)
    return uid == 0 or _allows(os.stat(path), uid, wanted)


def _allows(status: os.stat_result, uid: int, wanted: int) -> bool:
    if status.st_uid == uid:
        bits = status.st_mode >> 6
    elif status.st_gid in _groups(uid):
        bits = status.st_mode >> 3
    else:
        bits = status.st_mode
    return bits & wanted == wanted


def _groups(uid: int) -> list[int]:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return []
    return os.getgrouplist(entry.pw_name, entry.pw_gid)


def is_read_only(path: str) -> bool:
    """Whether its file system takes nothing, whoever asks."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def hindrance(path: str, uid: int) -> Hindrance | None:
    """What keeps a broker of that user from reading and writing it; None if nothing does."""
    if is_read_only(path):
        return Hindrance("is on a file system that is mounted read-only", "mount it writable")
    status = os.stat(path)
    is_directory = stat.S_ISDIR(status.st_mode)
    wanted = os.R_OK | os.W_OK | (os.X_OK if is_directory else 0)
    if may(path, uid, wanted):
        return None
    mode = f"(mode {stat.S_IMODE(status.st_mode):04o})"
    if status.st_uid != uid:
        what = f"belongs to uid {status.st_uid}, and uid {uid} may not read and write it {mode}"
        return Hindrance(what, "chown it")
    if _allows(status, uid, wanted):
        what = f"may not be read and written, though its mode allows it {mode}"
        return Hindrance(what, "see `lsattr` and `getfacl`")
    what = f"may not be read and written {mode}"
    return Hindrance(what, f"chmod u={'rwx' if is_directory else 'rw'} it")


def unopened(path: str, error: OSError) -> str:
    """What to say of a file that this process could not make or open for writing."""
    try:
        found = hindrance(path, os.geteuid())
    except OSError:
        found = None
    return str(found) if found is not None else f"cannot be opened: {error.strerror}"
