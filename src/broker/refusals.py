"""Why a broker does not start on a directory or a file: one class for each reason.

Each carries the word of its exit code (`config/exits.py`) and a one-line message that begins with
the path and says what to do. Nothing that is refused here is repaired, changed or deleted.

    StartRefusedError
      DirectoryUnsafeError      CANNOT_CREATE  others could replace our files: owner, mode, symlink
      DirectoryUnusableError    CANNOT_CREATE  cannot be made or used: permission, not a directory
      NetworkFileSystemError    CANNOT_CREATE  locks and syncs mean something else there
      OwnedError                OWNED          another broker is running on it
      FileForeignError          DATA_REFUSED   something else bears the name of a file of ours
      JournalForeignError       DATA_REFUSED   not a journal of stoker
      JournalNewerError         DATA_REFUSED   written by a later release
      JournalEmptyError         DATA_REFUSED   zero bytes: what was in it is lost
      JournalOrphanedError      DATA_REFUSED   a log without the journal it belongs to
      JournalLostEarlierError   DATA_REFUSED   removed or replaced under the last broker, and not back
      JournalCorruptError       DATA_REFUSED   damaged; also raised while running
      JournalUnusableError      CANNOT_CREATE  cannot be opened or made: permission, owner, mode
      LibraryTooOldError        CONFIG         SQLite or msgpack with a known fault
"""

from .journal import JournalBrokenError


class StartRefusedError(Exception):
    """See the module."""

    exit_word = "CANNOT_CREATE"

    def __init__(self, path: str, says: str) -> None:
        super().__init__(f"{path}: {says}")
        self.path = path


class DirectoryUnsafeError(StartRefusedError):
    pass


class DirectoryUnusableError(StartRefusedError):
    pass


class NetworkFileSystemError(StartRefusedError):
    pass


class OwnedError(StartRefusedError):
    exit_word = "OWNED"

    def __init__(self, path: str, says: str, *, pid: int | None = None) -> None:
        super().__init__(path, says)
        self.pid = pid


class FileForeignError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalForeignError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalNewerError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalEmptyError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalOrphanedError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalLostEarlierError(StartRefusedError):
    exit_word = "DATA_REFUSED"


class JournalCorruptError(StartRefusedError, JournalBrokenError):
    """A checksum or SQLite itself found damage. A restart would only find it again."""

    exit_word = "DATA_REFUSED"


class JournalUnusableError(StartRefusedError):
    pass


class LibraryTooOldError(StartRefusedError):
    exit_word = "CONFIG"
