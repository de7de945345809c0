"""The state directory as a broker would judge it: owner, mode, what is above it, what lies in it."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath

from ..broker.files import check_directory, check_files
from ..broker.lasterror import read_last_error
from ..broker.refusals import StartRefusedError
from .finding import Finding, Level

CHECK = "directory"
LAST_ERROR_CHECK = "last error"

_OTHERS_MAY_LOOK = stat.S_IRWXG | stat.S_IRWXO


def owner_of(path: str, uid: int) -> int:
    """Whose broker it would be: root looks after the directories of others."""
    if uid == 0:
        try:
            return os.lstat(path).st_uid
        except OSError:
            return uid
    return uid


def nearest(path: str) -> str:
    """The path, or of what is above it the first that is there."""
    absolute = os.path.abspath(path)
    return next(each for each in (absolute, *map(str, PurePath(absolute).parents)) if os.path.exists(each))


def check_state(path: str, uid: int) -> Iterator[Finding]:
    """`uid` is whose broker would use it."""
    try:
        check_directory(path, uid=uid)
        check_files(path)
    except FileNotFoundError:
        yield Finding(Level.NOTE, CHECK, f"{path}: is not there yet; a broker makes it")
    except StartRefusedError as error:
        yield Finding(Level.ERROR, CHECK, str(error))
    except OSError as error:
        yield Finding(
            Level.ERROR,
            CHECK,
            f"{path}: cannot be looked at: {error.strerror}",
            "run this as its owner or as root",
        )
    else:
        yield from _modes(path, uid)


def _modes(path: str, uid: int) -> Iterator[Finding]:
    yield Finding(Level.OK, CHECK, f"{path}: belongs to uid {uid}, and nobody else can change it")
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    for name in names:
        # A broker that runs may remove a file of its own meanwhile.
        with suppress(FileNotFoundError):
            yield from _file(os.path.join(path, name), uid)


def _file(path: str, uid: int) -> Iterator[Finding]:
    status = os.lstat(path)
    if status.st_uid != uid:
        what = f"{path}: belongs to uid {status.st_uid}, not to uid {uid}"
        yield Finding(Level.WARNING, CHECK, what, "chown it")
    if status.st_mode & _OTHERS_MAY_LOOK:
        what = f"{path}: has mode {stat.S_IMODE(status.st_mode):04o}; payloads are nobody else's"
        yield Finding(Level.WARNING, CHECK, what, "chmod 600 it")


def check_last_error(path: str) -> Iterator[Finding]:
    """What the last broker wrote down of its end."""
    try:
        error = read_last_error(path)
    except OSError:
        # The directory itself has been judged by then.
        return
    if error is None:
        return
    when = (
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(error.at_ms / 1000))}: "
        if error.at_ms
        else ""
    )
    if error.recovered_at_ms:
        what = f"{when}{error.message}; a later start checked the journal and found it sound"
        yield Finding(Level.NOTE, LAST_ERROR_CHECK, what)
    else:
        what = f"{when}{error.message}"
        yield Finding(
            Level.WARNING, LAST_ERROR_CHECK, what, "mend the cause; the next start checks the whole journal"
        )
