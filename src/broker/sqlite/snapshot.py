"""Copying a journal while it is in use: SQLite's backup, in slices, to a file that appears whole.

The copy is built under a temporary name, checked, synced, and then linked to its own; a name that is
taken is never overwritten. Commits made through the same connection between two slices go into the
copy as well, so it is the journal of the moment it was finished.

A copy says that it is one. Who goes back to it goes back in time, and so would the epochs, which tokens must
never do; `loading.begin_start` sees to that.
"""

import errno
import os
from collections.abc import Generator
from contextlib import suppress
from threading import Thread

import apsw

from . import rows, schema
from .database import Database
from .errors import is_full
from .opening import create_private, sync_directory

PAGES_PER_STEP = 512
"""2 MiB: some milliseconds, about as long as a commit may wait."""

_CHECK_POLL_S = 0.005


def copy_steps(source: Database, path: str, vfs: str = "") -> Generator[None, None, int]:
    """Copy the database; the size of the copy. OSError names what could not be written and why."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    temporary = path + ".partial"
    create_private(temporary)
    try:
        yield from _fill(source, temporary, vfs)
        _sync(temporary)
        # `link` fails where `rename` would overwrite a file made since the look above.
        os.link(temporary, path)
    finally:
        for leftover in (temporary, temporary + "-journal", temporary + "-wal"):
            with suppress(FileNotFoundError):
                os.unlink(leftover)
    sync_directory(path)
    return os.stat(path).st_size


def _fill(source: Database, path: str, vfs: str) -> Generator[None, None, None]:
    target = Database(path, apsw.SQLITE_OPEN_READWRITE, vfs)
    try:
        # Nobody reads the copy before it is whole, so it needs neither a log nor syncs on the way.
        target.run("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        with target.connection.backup("main", source.connection, "main") as backup:
            while not backup.done:
                backup.step(PAGES_PER_STEP)
                yield
        target.run(schema.PUT_META, rows.sealed((schema.IS_COPY, 1)))
        # The header says WAL, as the source's does: a single file is easier to keep and to move.
        target.run("PRAGMA journal_mode = DELETE")
        yield from _check(target, path)
    except apsw.Error as error:
        raise _explained(error, target, path) from error
    finally:
        target.close()


def _check(target: Database, path: str) -> Generator[None, None, None]:
    """An integrity check cannot be cut into slices, so it runs beside: the copy has its own connection."""
    found: list[str] = []

    def check() -> None:
        try:
            found.extend(str(row[0]) for row in target.each("PRAGMA integrity_check(3)"))
        except apsw.Error as error:
            found.append(str(error))

    thread = Thread(target=check, name="snapshot check", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_CHECK_POLL_S)
            yield
    finally:
        target.connection.interrupt()
        thread.join()
    if found != ["ok"]:
        raise OSError(errno.EIO, f"the copy is damaged: {'; '.join(found)}", path)


def _explained(error: apsw.Error, target: Database, path: str) -> Exception:
    """OSError if writing the copy failed; the error itself if reading the journal did."""
    if is_full(error, target.connection.system_errno):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return error
    return OSError(target.connection.system_errno or errno.EIO, str(error), path)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
