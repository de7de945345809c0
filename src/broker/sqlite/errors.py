"""What an error of SQLite means for the broker: the disk is full, the file is damaged, or all is lost.

Only a full disk may be tried again. After any other error the kernel may have thrown the unwritten
pages away and call them clean, so that a repeated sync reports a success that is none.
"""

import errno

import apsw

from ..journal import JournalBrokenError, JournalFullError
from ..refusals import (
    JournalCorruptError,
    JournalForeignError,
    JournalUnusableError,
    OwnedError,
    StartRefusedError,
)

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def meaning(
    error: apsw.Error, path: str, doing: str, system_errno: int
) -> JournalFullError | JournalBrokenError:
    """The exception to raise instead, for an error met while `doing` something with the file.

    `system_errno` is the connection's, read right after the error: the next call may change it.
    """
    if is_full(error, system_errno):
        return JournalFullError(f"{path}: no space left, while {doing}")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return JournalCorruptError(path, f"is damaged ({error}); restore a snapshot")
    if _code(error) == apsw.SQLITE_IOERR_SHORT_READ:
        return JournalCorruptError(path, "is damaged (shorter than it was); restore a snapshot")
    code = apsw.mapping_extended_result_codes.get(_code(error)) or type(error).__name__
    return JournalBrokenError(f"{path}: {error} ({code}, errno {system_errno}), while {doing}")


def is_full(error: apsw.Error, system_errno: int) -> bool:
    """Whether this is a full disk, and nothing of what was asked is stored.

    A failed sync is never one, whatever its errno: what it was to make durable may be gone.
    """
    if isinstance(error, apsw.FullError):
        return True
    return _code(error) == apsw.SQLITE_IOERR_WRITE and system_errno in NO_SPACE


def refusal(error: BaseException | None, path: str) -> StartRefusedError | None:
    """What an error met while opening says about the file, rather than about the disk."""
    if isinstance(error, apsw.BusyError):
        return OwnedError(path, "is in use by another process; stop that one, or choose another with --data")
    if isinstance(error, apsw.NotADBError):
        return JournalForeignError(path, f"is not a journal of stoker ({error}); restore the right file")
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError):
        return JournalUnusableError(path, f"cannot be opened for writing ({error}); check owner and mode")
    if isinstance(error, OSError):
        return JournalUnusableError(path, f"cannot be opened or made: {error.strerror}")
    return None


def _code(error: apsw.Error) -> int:
    return getattr(error, "extendedresult", 0)
