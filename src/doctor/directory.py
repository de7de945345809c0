"""The state directory as a broker would judge it: owner, mode, what is above it, what lies in it."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath

from ..broker.files import BALLAST, JOURNAL, LOCK, check_directory, check_files, check_place
from ..broker.lasterror import LAST_ERROR, START_LOOKS, LastError, account, read_last_error, refuse_lost
from ..broker.permission import hindrance
from ..broker.refusals import (
    DirectoryUnsafeError,
    FileForeignError,
    JournalLostEarlierError,
    StartRefusedError,
)
from ..broker.regular import kind_of_file, open_regular
from ..config.people import OVERFLOW_ID
from ..proto.statefiles import OUTPUT
from .finding import Finding, Level

CHECK = "directory"
LAST_ERROR_CHECK = "last error"

_WRITTEN = frozenset({JOURNAL, f"{JOURNAL}-wal", LOCK})
"""What a broker has to open for writing before it starts; only root may where it is another's."""

_USED = frozenset({BALLAST, LAST_ERROR})
"""What it opens when it needs to, and does without."""

_LOOK = (
    "for a look at all of it run this with the broker stopped, or `stoker snapshot NAME` and `stoker doctor "
    "--journal` with what that prints"
)

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
    if uid == OVERFLOW_ID:
        what = (
            f"{path}: uid {uid} (nobody) stands for every user that the kernel cannot name: no broker starts"
        )
        yield Finding(Level.ERROR, CHECK, what, "use another user")
    try:
        is_there = is_directory(path, uid)
        if is_there:
            check_files(path)
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
        yield from _modes(path, uid) if is_there else (missing(path),)


def is_directory(path: str, uid: int) -> bool:
    """Whether it is there. A StartRefusedError if it is not safe, or is not there and cannot be made."""
    try:
        check_directory(path, uid=uid)
    except FileNotFoundError:
        check_place(path, uid=uid)
        return False
    except DirectoryUnsafeError:
        _refuse_anothers(path, uid)
        raise
    return True


def _refuse_anothers(path: str, uid: int) -> None:
    """What belongs to somebody else is not for this user to change, so a broker's advice is not for him."""
    owner = os.lstat(path).st_uid
    if owner != uid and os.geteuid() not in (0, owner):
        raise DirectoryUnsafeError(
            path,
            f"belongs to uid {owner}, not to uid {uid}; choose another with --data, or run this as its owner",
        )


def missing(path: str, check: str = CHECK) -> Finding:
    return Finding(Level.NOTE, check, f"{path}: is not there yet; a broker makes it")


def _modes(path: str, uid: int) -> Iterator[Finding]:
    yield Finding(Level.OK, CHECK, f"{path}: belongs to uid {uid}, and nobody else can change it")
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & _OTHERS_MAY_LOOK:
        what = f"{path}: has mode {mode:04o}; what is in it concerns its owner alone"
        yield Finding(Level.WARNING, CHECK, what, "chmod 700 it")
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    for name in names:
        # A broker that runs may remove a file of its own meanwhile.
        with suppress(FileNotFoundError):
            yield from _file(os.path.join(path, name), uid)
    with suppress(FileNotFoundError):
        yield from _output(os.path.join(path, OUTPUT), uid)


def _output(path: str, uid: int) -> Iterator[Finding]:
    """Files of what programs said: pools keep none where others may look."""
    mode = os.lstat(path).st_mode
    if not stat.S_ISDIR(mode):
        yield Finding(
            Level.WARNING, CHECK, f"{path}: is {kind_of_file(mode)}, not a directory", "move it away"
        )
    elif mode & _OTHERS_MAY_LOOK:
        what = f"{path}: has mode {stat.S_IMODE(mode):04o}; no pool keeps output there"
        yield Finding(Level.WARNING, CHECK, what, "chmod 700 it")
    else:
        trouble = hindrance(path, uid)
        if trouble is not None:
            what = f"{path}: {trouble.what}; no pool keeps output there"
            yield Finding(Level.WARNING, CHECK, what, trouble.advice)


def _file(path: str, uid: int) -> Iterator[Finding]:
    status = os.lstat(path)
    name = os.path.basename(path)
    trouble = hindrance(path, uid) if name in _WRITTEN | _USED else None
    if trouble is not None:
        level = Level.ERROR if name in _WRITTEN else Level.WARNING
        yield Finding(level, CHECK, f"{path}: {trouble.what}", trouble.advice)
    elif status.st_uid != uid:
        level = Level.ERROR if uid != 0 and name in _WRITTEN else Level.WARNING
        what = f"{path}: belongs to uid {status.st_uid}, not to uid {uid}"
        yield Finding(level, CHECK, what, "chown it")
    if status.st_mode & _OTHERS_MAY_LOOK:
        what = f"{path}: has mode {stat.S_IMODE(status.st_mode):04o}; payloads are nobody else's"
        yield Finding(Level.WARNING, CHECK, what, "chmod 600 it")


def check_last_error(path: str, *, is_sound: bool = False) -> Iterator[Finding]:
    """What the last broker wrote down of its end. `is_sound`: every row of the journal was read now, and is right."""
    file = os.path.join(path, LAST_ERROR)
    try:
        os.close(open_regular(file))
    except (FileNotFoundError, NotADirectoryError, FileForeignError):
        # What is in the way of a broker was told with the directory.
        return
    except OSError as trouble:
        what = f"{file}: cannot be read: {trouble.strerror}"
        yield Finding(Level.WARNING, LAST_ERROR_CHECK, what, "run this as its owner or as root")
        return
    error = read_last_error(path)
    if error is None:
        return
    when = (
        f"{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(error.at_ms / 1000))}: "
        if error.at_ms
        else ""
    )
    judge = _closed_error if error.recovered_at_ms else _open_error
    yield judge(path, f"{when}{account(error)}", error, is_sound)


def _closed_error(path: str, what: str, error: LastError, is_sound: bool) -> Finding:
    """Of an error after which a start has come up."""
    file = os.path.join(path, LAST_ERROR)
    if is_sound:
        what = f"{what}; a later start came up, and now every row of the journal is right"
        return Finding(Level.NOTE, LAST_ERROR_CHECK, what, f"remove {file}, and this is forgotten")
    what = f"{what}; a later start came up, but {START_LOOKS}"
    return Finding(
        Level.WARNING, LAST_ERROR_CHECK, what, f"{_LOOK}; when that finds all sound, remove {file}"
    )


def _open_error(path: str, what: str, error: LastError, is_sound: bool) -> Finding:
    try:
        refuse_lost(path, error)
    except JournalLostEarlierError as refusal:
        return Finding(Level.ERROR, LAST_ERROR_CHECK, what, f"{refusal}; until then no broker starts")
    looked = "every row of the journal is right now" if is_sound else START_LOOKS
    return Finding(Level.WARNING, LAST_ERROR_CHECK, what, f"mend the cause, then start the broker; {looked}")
