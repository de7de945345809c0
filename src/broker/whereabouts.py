"""Whether what a broker writes to is still what its paths lead to.

A file that is removed or replaced goes on living for whoever has it open: commits succeed, syncs succeed,
and nobody will ever find them. So the directory and the files in it are remembered by device and inode when
they have been opened, and compared with what the paths say later. Only names are asked for: opening the
database once more would give up SQLite's lock on it.

An error other than a missing name proves nothing and is passed over. If the disk is broken, the next write
says so.
"""

import os
from collections.abc import Sequence

from .journal import JournalBrokenError

Identity = tuple[int, int]
"""Device and inode: no other file has both while this one is open."""

Inodes = Sequence[tuple[str, int]]
"""Names in the directory, each with the inode of the file that belongs there."""

GONE = 0
"""In place of an inode, which is never 0: what was in the file is in none any more."""


class JournalLostError(JournalBrokenError):
    """What is written from now on could not be found again. `files` have to come back, if it was files."""

    def __init__(self, path: str, says: str, files: Inodes = ()) -> None:
        super().__init__(f"{path}: {says}")
        self.files = files


class Whereabouts:
    """A directory and files in it, as they were when this was made."""

    def __init__(self, directory: str, *names: str) -> None:
        """FileNotFoundError if one of them is missing already."""
        self._directory = directory
        self._place = _identity(os.stat(directory))
        self._files = {name: _identity(os.lstat(os.path.join(directory, name))) for name in names}

    def check(self) -> None:
        """JournalLostError, with what to do, if a path leads nowhere or elsewhere."""
        try:
            place = _identity(os.stat(self._directory))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise JournalLostError(self._directory, "the directory is gone; bring it back") from error
        except OSError:
            return
        if place != self._place:
            raise JournalLostError(self._directory, "is another directory now; bring the old one back")
        for name, identity in self._files.items():
            self._check_file(name, identity)

    def _check_file(self, name: str, identity: Identity) -> None:
        path = os.path.join(self._directory, name)
        try:
            # Not what a symbolic link leads to: the next start would not follow it.
            found = _identity(os.lstat(path))
        except (FileNotFoundError, NotADirectoryError):
            what = "was removed or moved under the broker that wrote to it"
        except OSError:
            return
        else:
            if found == identity:
                return
            what = "was replaced by another file under the broker that wrote to it"
        files = [(each, inode) for each, (_, inode) in self._files.items()]
        raise JournalLostError(path, f"{what}; bring the old one back (inode {identity[1]})", files)


def missing_of(directory: str, files: Inodes) -> str | None:
    """The first path at which the file with that inode is not, None if all are back."""
    for name, inode in files:
        path = os.path.join(directory, name)
        try:
            if os.lstat(path).st_ino == inode:
                continue
        except OSError:
            pass
        return path
    return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
