"""Opening the journal's file: made whole or not at all, and refused by name when it is not ours.

A file is judged before SQLite sees it, because SQLite may write to what it opens (it folds a log
into the database, and takes zero bytes for an empty one). What is refused stays as it is, byte for
byte. A new journal is built under another name and renamed, so that a file under the journal's name
is never half made: zero bytes there mean that something was lost.
"""

import errno
import os
import stat
from contextlib import suppress

import apsw
import msgpack

from ..permission import hindrance
from ..refusals import (
    JournalEmptyError,
    JournalForeignError,
    JournalNewerError,
    JournalOrphanedError,
    JournalUnusableError,
    LibraryTooOldError,
)
from ..regular import check_regular, kind_of_file, open_regular
from . import rows, schema
from .database import Database
from .errors import is_full

SQLITE_VERSION_MIN = (3, 51, 3)
"""Below it, a checkpoint that meets a commit may lose it (the WAL-reset race)."""

MSGPACK_VERSION_MIN = (1, 2, 1)
"""Below it, a decoder used again after an error may crash the process (CVE-2026-57585)."""

_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_WRITE_VERSION = 18
_WAL_MODE = 2
_USER_VERSION = slice(60, 64)
_APPLICATION_ID = slice(68, 72)


def check_libraries(sqlite: str | None = None, msgpack_version: tuple[int, ...] | None = None) -> None:
    """LibraryTooOldError if SQLite or msgpack has a fault that a journal must not meet."""
    sqlite = sqlite or apsw.sqlite_lib_version()
    if tuple(map(int, sqlite.split("."))) < SQLITE_VERSION_MIN:
        raise LibraryTooOldError("SQLite", f"version {sqlite} is too old; install apsw 3.51.3 or later")
    found = msgpack_version or msgpack.version
    if found < MSGPACK_VERSION_MIN:
        raise LibraryTooOldError(
            "msgpack", f"version {'.'.join(map(str, found))} is too old; install msgpack 1.2.1 or later"
        )


def open_database(path: str, vfs: str = "") -> Database:
    """A connection to the journal of that name, which is made if there is none.

    Nothing has been read or locked yet. OSError and apsw errors are the caller's to explain.
    """
    check_libraries()
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        _refuse_orphans(path)
        _create(path, vfs)
    else:
        _check_status(path, status, os.geteuid())
        _refuse_unwritable(path)
        _check_header(path)
    return _connect(path, vfs)


def examine(path: str, uid: int) -> None:
    """Refuse what `open_database` of that user would refuse, and change nothing; a copy need not be writable.

    FileNotFoundError if there is no such file, and so one would be made.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        _refuse_orphans(path)
        raise
    _check_status(path, status, uid)
    for log in (f"{path}-wal", f"{path}-journal"):
        # A broker has looked at the whole directory by then; a copy lies elsewhere.
        with suppress(FileNotFoundError):
            check_regular(log, os.lstat(log).st_mode)
    with open(open_regular(path), "rb") as file:
        _judge_header(path, file.read(_HEADER_BYTES))


def _connect(path: str, vfs: str) -> Database:
    # SQLITE_OPEN_NOFOLLOW would refuse a symbolic link anywhere in the path; only the file itself may
    # not be one.
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    database = Database(real, flags, vfs)
    # A file that is refused after all, or whose sync has failed, must not be written on closing.
    database.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    database.connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    return database


def _refuse_orphans(path: str) -> None:
    for log in (f"{path}-wal", f"{path}-journal"):
        if _has_content(log):
            raise JournalOrphanedError(
                path, f"is missing, but its log {log} is there; bring back the file that belongs to it"
            )


def _has_content(path: str) -> bool:
    try:
        return os.lstat(path).st_size > 0
    except FileNotFoundError:
        return False


def _check_status(path: str, status: os.stat_result, uid: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise JournalForeignError(path, f"is {kind_of_file(status.st_mode)}, not a file; move it away")
    if status.st_uid != uid:
        raise JournalUnusableError(path, f"belongs to uid {status.st_uid}; chown it or run as its owner")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JournalUnusableError(
            path, "is writable by others; if its content is to be trusted, chmod 600 it"
        )
    if status.st_nlink > 1:
        # Under its other name it has another log: what is in this one would be missing there, and would
        # be written over what that one has brought in.
        raise JournalUnusableError(
            path, f"has {status.st_nlink} names, and its log belongs to one; remove the other hard links"
        )
    if status.st_size == 0:
        raise JournalEmptyError(
            path, "has zero bytes: what it held is lost; restore a snapshot, or remove it to begin anew"
        )


def _refuse_unwritable(path: str) -> None:
    """SQLite would open it for reading alone, and fail later with an error that looks like the disk's."""
    for each in (path, f"{path}-wal"):
        with suppress(FileNotFoundError):
            trouble = hindrance(each, os.geteuid())
            if trouble is not None:
                raise JournalUnusableError(each, str(trouble))


def _check_header(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        header = os.pread(fd, _HEADER_BYTES, 0)
        _judge_header(path, header)
        if os.fstat(fd).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            # A copy restored under a common umask. Payloads are nobody else's business.
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _judge_header(path: str, header: bytes) -> None:
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise JournalForeignError(path, "is not an SQLite database; restore the right file")
    application_id = int.from_bytes(header[_APPLICATION_ID], "big")
    check_version(path, application_id, int.from_bytes(header[_USER_VERSION], "big"))
    if _has_content(f"{path}-journal"):
        # stoker never writes one, and SQLite would carry it out, or throw it away, before anything is read.
        raise JournalOrphanedError(
            path,
            f"was being changed by another program, which left {path}-journal behind; restore a snapshot, or "
            "have the sqlite3 shell open it once",
        )
    if header[_WRITE_VERSION] != _WAL_MODE and _has_content(f"{path}-wal"):
        # SQLite would take the log for this file's own and write another journal's pages into it.
        raise JournalOrphanedError(
            path, f"is a copy, and the log {path}-wal is another file's; move that away"
        )


def check_version(path: str, application_id: int, user_version: int) -> None:
    """Refuse what another program or a later release wrote."""
    if application_id != schema.APPLICATION_ID or user_version < 1:
        raise JournalForeignError(path, "is a database of another program; restore the right file")
    if user_version > schema.SCHEMA_VERSION:
        raise JournalNewerError(
            path,
            f"was written by a later release (schema {user_version}, this one knows {schema.SCHEMA_VERSION});"
            " install that release",
        )


def _create(path: str, vfs: str) -> None:
    """Build an empty journal under another name and give it its own: all or nothing."""
    temporary = path + ".new"
    for leftover in (temporary, f"{temporary}-journal", f"{temporary}-wal"):
        with suppress(FileNotFoundError):
            os.unlink(leftover)
    create_private(temporary)
    database = _connect(temporary, vfs)
    try:
        database.run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL")
        database.run(f"BEGIN; {schema.SCHEMA}")
        database.run_many(schema.PUT_META, map(rows.sealed, schema.META_OF_NEW))
        database.run("COMMIT; PRAGMA journal_mode = WAL")
        # Nothing is in the log: only the mode was set, so that the file is what it will be from the start.
        database.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.Error as error:
        if is_full(error, database.connection.system_errno):
            # Said here, where the connection is that knows the errno.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary) from error
        raise
    finally:
        database.close()
    os.rename(temporary, path)
    sync_directory(path)


def create_private(path: str) -> None:
    """An empty file that only its owner may read, whatever the umask; FileExistsError if there is one."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def sync_directory(path: str) -> None:
    """Make the name of a file durable. SQLite does not report it when this fails; this does."""
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
