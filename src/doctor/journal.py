"""The journal: whole, or what is wrong with it. One that a broker has open is left to that broker."""

import os
from collections.abc import Iterator
from contextlib import suppress

from ..broker.journal import JournalBrokenError
from ..broker.refusals import FileForeignError, StartRefusedError
from ..broker.sqlite.checkup import check_up
from ..broker.sqlite.holder import holder
from .finding import Finding, Level

CHECK = "journal"

_RESTORE = "restore a snapshot"
_ADVISED = f"; {_RESTORE}"
_KEEP = f"{_RESTORE}, or keep a copy of the files before you try anything else"

Prints = tuple[tuple[int, int, int] | None, ...]


def holder_of(path: str) -> int | None:
    """The pid of the broker that has a journal open, 0 if it cannot be named; None if none has."""
    try:
        return holder(path)
    except (OSError, FileForeignError):
        # Not there, no file, or not to be read: whoever looks at it next says so.
        return None


def check_journal(path: str, uid: int, *, is_named: bool = False) -> Iterator[Finding]:
    """One that no broker has open, or a copy. `uid` is whose broker would open it.

    One that is named has to be there: who checks a copy wants to know that it is sound.
    """
    before = _prints(path)
    try:
        found = check_up(path, uid)
    except FileNotFoundError:
        if is_named:
            yield Finding(Level.ERROR, CHECK, f"{path}: is not there", "name a file that is")
        else:
            yield Finding(Level.NOTE, CHECK, f"{path}: is not there yet; a broker makes it")
        return
    except (StartRefusedError, JournalBrokenError) as error:
        yield _damaged(str(error), "")
        return
    except OSError as error:
        advice = "chmod u=rw it" if _is_own(path) else "run this as its owner or as root"
        yield Finding(Level.ERROR, CHECK, f"{path}: cannot be read: {error.strerror}", advice)
        return
    if _prints(path) != before or holder_of(path) is not None:
        what = f"{path}: was changed while it was looked at: a broker was started"
        yield Finding(Level.NOTE, CHECK, what, "ask again")
        return
    for damage in found.damage:
        yield _damaged(damage, _KEEP)
    if not found.damage:
        counts = f"{found.jobs} jobs, {found.payloads} payloads, {found.outcomes} outcomes"
        yield Finding(Level.OK, CHECK, f"{path}: sound, every row and its log ({counts})")


def _is_own(path: str) -> bool:
    with suppress(OSError):
        return os.lstat(path).st_uid == os.geteuid()
    return False


def _damaged(text: str, advice: str) -> Finding:
    what, has_advice, more = text.partition(_ADVISED)
    return Finding(Level.ERROR, CHECK, what, f"{_RESTORE}{more}" if has_advice else advice)


def leave_journal(path: str, pid: int) -> Finding:
    """Of one that a broker has open."""
    who = f"a broker (pid {pid})" if pid else "a broker"
    return Finding(
        Level.NOTE,
        CHECK,
        f"{path}: {who} has it open, and checks each row that it reads; it was not looked at",
        "for a whole check: `stoker snapshot NAME`, then `stoker doctor --journal` with what that prints",
    )


def _prints(path: str) -> Prints:
    """What changes when a file and its log are written to."""
    found: list[tuple[int, int, int] | None] = []
    for each in (path, f"{path}-wal"):
        try:
            status = os.stat(each)
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)
