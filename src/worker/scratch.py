"""A worker's own temporary directory, empty when a job begins.

A directory for each job would cost each job two system calls on a disk, used or not, and one that is
made when it is first needed cannot be seen by programs that only read TMPDIR. So each worker has one,
made as it comes up, and TMPDIR and `tempfile` name it while jobs run. After a job one look tells whether
anything was ever put there: the directory's time of change is set to 1970 when it is empty, and every
entry that is made in it moves that. Then all of it is removed, and the directory is as new.

What is meant to outlive a job goes elsewhere, by its own path. What start hooks make goes where TMPDIR
pointed before, which is also where this directory lies.

The supervisor removes it when the worker's whole tree is gone, however it ended; and the zygote does, if the
supervisor was killed. Only if both are killed it stays behind.
"""

import os
import stat
import sys
from typing import Any

NAME_LENGTH = 16
"""Characters of the nonce in the name: unguessable, and short enough for the path of a socket in it."""


def path_of(nonce: str, base: str) -> str:
    """Where the worker of a nonce has its directory."""
    return os.path.join(base, f"stoker-{nonce[:NAME_LENGTH]}")


def base() -> str:
    """Where this process would put its temporary files. Asked before the app can have changed it."""
    return os.path.abspath(os.environ.get("TMPDIR") or "/tmp")


def remove(path: str) -> None:
    """Remove a directory and all that is in it, as far as that can be done."""
    if os.path.lexists(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)


class Scratch:
    """The directory, in its worker."""

    def __init__(self, path: str) -> None:
        self.path = path

    def make(self) -> bool:
        """Make it and let TMPDIR and `tempfile` name it; False if there is no place for it."""
        if not self._make():
            return False
        os.environ["TMPDIR"] = self.path
        self._tell_tempfile()
        return True

    def clean(self) -> bool:
        """See that it is there, empty, and used; False if that cannot be had."""
        self._tell_tempfile()
        try:
            found = os.lstat(self.path)
        except OSError:
            return self._make()
        if found.st_mtime_ns == 0 and stat.S_ISDIR(found.st_mode):
            return True
        if stat.S_ISDIR(found.st_mode):
            remove(self.path)
        else:
            os.unlink(self.path)
        return self._make()

    def _make(self) -> bool:
        try:
            os.mkdir(self.path, 0o700)
            os.utime(self.path, (0, 0))
        except OSError:
            return False
        return True

    def _tell_tempfile(self) -> None:
        """`tempfile` reads TMPDIR once, maybe long ago. One that is not loaded yet will read it."""
        module: Any = sys.modules.get("tempfile")
        if module is not None and module.tempdir != self.path:
            module.tempdir = self.path
