"""The state directory: made safely or refused, owned by one broker, with a way out of a full disk.

Everything in it is the broker's alone. Whoever can rename or replace a file here can do as the
broker's user, so the directory and all above it must be out of others' hands. Refusals say what to
do and change nothing.

The lock is `flock` on a file of its own: SQLite's lock is lost when anything else in the process
opens and closes the database, and cannot say who holds it. A child that is forked and does not exec
would keep the lock alive after its owner's death, which is one reason why the broker never forks.
"""

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import PurePath

from ..proto import limits, statefiles
from .lasterror import LAST_ERROR
from .permission import hindrance, is_read_only, may, unopened
from .refusals import (
    DirectoryUnsafeError,
    DirectoryUnusableError,
    NetworkFileSystemError,
    OwnedError,
)
from .regular import check_regular

JOURNAL = "journal.db"
LOCK = statefiles.LOCK
BALLAST = "ballast"
SNAPSHOTS = "snapshots"
JOURNAL_ENDS = ("-wal", "-shm", "-journal", ".new", ".new-wal", ".new-journal")
"""Of files that SQLite makes beside the journal, and of a journal that is being made."""

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "gfs2",
        "glusterfs",
        "lustre",
        "ocfs2",
        "ncpfs",
        "fuse.sshfs",
        "fuse.glusterfs",
    }
)
"""Where locks and syncs are promises of another machine. One host, one disk: that is the contract."""

MOUNTS = "/proc/self/mountinfo"
"""Where the kernel lists the file systems of this process."""

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def prepare_directory(path: str, *, uid: int, mode: int = 0o700, gid: int | None = None) -> str:
    """Make the directory or check it; its real path. A StartRefusedError if it is not safe.

    `mode` and `gid` are for one that is made here; one that was there stays as it is.
    """
    if os.path.islink(path):
        raise DirectoryUnsafeError(path, "is a symbolic link; name the directory it points to")
    try:
        _make(os.path.abspath(path), mode, gid)
        status = os.lstat(path)
    except OSError as error:
        raise DirectoryUnusableError(
            path, f"cannot be made: {error.strerror}; choose another with --data"
        ) from None
    return _check(path, status, uid)


def check_directory(path: str, *, uid: int, mounts_path: str = MOUNTS) -> str:
    """The same for one that is there, and changes nothing; FileNotFoundError if it is not there.

    Then `check_place` says whether one could be made.

    `uid` is whose broker would use it. `mounts_path` lists the file systems.
    """
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise DirectoryUnsafeError(path, "is a symbolic link; name the directory it points to")
    return _check(path, status, uid, mounts_path)


def check_place(path: str, *, uid: int, mounts_path: str = MOUNTS) -> None:
    """What `prepare_directory` would say of a directory that is not there, as far as it can be foreseen."""
    absolute = os.path.abspath(path)
    near = next(each for each in map(str, PurePath(absolute).parents) if os.path.lexists(each))
    if not os.path.isdir(near):
        reason = f"{near} is not a directory"
    elif is_read_only(near):
        reason = f"{near} is on a file system that is mounted read-only"
    elif not may(near, uid, os.W_OK | os.X_OK):
        reason = f"nothing may be made in {near}"
    else:
        _check_parents(os.path.realpath(absolute), uid, have_all=False)
        _check_file_system(path, near, mounts_path)
        return
    raise DirectoryUnusableError(path, f"cannot be made: {reason}; choose another with --data")


def _check(path: str, status: os.stat_result, uid: int, mounts_path: str = MOUNTS) -> str:
    _check_directory(path, status, uid)
    real = os.path.realpath(path)
    _check_parents(real, uid)
    trouble = hindrance(real, uid)
    if trouble is not None:
        raise DirectoryUnusableError(path, str(trouble))
    _check_file_system(path, real, mounts_path)
    return real


def _check_file_system(path: str, near: str, mounts_path: str) -> None:
    kind = file_system(os.path.realpath(near), mounts_path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise NetworkFileSystemError(
            path, f"is on a network file system ({kind}); use a local disk with --data"
        )


def check_files(directory: str) -> None:
    """FileForeignError if something else bears the name of one of our files: a FIFO would block whoever
    opens it, and nothing of another kind can be written. The journal itself is judged where it is opened."""
    for name in (LOCK, BALLAST, LAST_ERROR, f"{LAST_ERROR}.new", *(JOURNAL + end for end in JOURNAL_ENDS)):
        path = os.path.join(directory, name)
        with suppress(FileNotFoundError):
            check_regular(path, os.lstat(path).st_mode)


def _make(path: str, mode: int, gid: int | None) -> None:
    # Not `makedirs`, which leaves the mode of what is above to the umask.
    for each in (*map(str, reversed(PurePath(path).parents)), path):
        if not os.path.lexists(each):
            with suppress(FileExistsError):
                os.mkdir(each, 0o700)
                # Opened to others only when its group is right.
                if gid is not None:
                    os.chown(each, -1, gid)
                if mode != 0o700:
                    os.chmod(each, mode)


def _check_directory(path: str, status: os.stat_result, uid: int) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise DirectoryUnusableError(path, "is not a directory; choose another with --data")
    if status.st_uid != uid:
        raise DirectoryUnsafeError(
            path, f"belongs to uid {status.st_uid}, not to uid {uid}; chown it or run as its owner"
        )
    if status.st_mode & _OTHERS_MAY_WRITE:
        raise DirectoryUnsafeError(path, f"is writable by others (mode {_mode(status)}); chmod go-w it")


def _check_parents(real: str, uid: int, *, have_all: bool = True) -> None:
    """What is not there yet would be made as safe as it has to be."""
    # In a user namespace root appears under another number: whoever owns `/` is as good as root.
    trusted = {0, uid, os.stat("/").st_uid}
    for parent in map(str, PurePath(real).parents):
        if not have_all and not os.path.exists(parent):
            continue
        status = os.stat(parent)
        if status.st_uid not in trusted:
            raise DirectoryUnsafeError(
                real,
                f"{parent} belongs to uid {status.st_uid}, who could replace it; choose another with --data",
            )
        if status.st_mode & _OTHERS_MAY_WRITE and not status.st_mode & stat.S_ISVTX:
            raise DirectoryUnsafeError(
                real,
                f"{parent} is writable by others (mode {_mode(status)}), who could replace it; chmod go-w it",
            )
        if not may(parent, uid, os.X_OK):
            raise DirectoryUnusableError(
                real,
                f"cannot be reached: {parent} has mode {_mode(status)}; chmod it, or choose another with --data",
            )


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def file_system(real: str, mounts_path: str = MOUNTS) -> str:
    """The type of the file system a real path is on; empty if the kernel does not say."""
    try:
        with open(mounts_path, encoding="utf-8", errors="surrogateescape") as file:
            mounts = [_mount(line) for line in file]
    except OSError:
        return ""
    # Later lines lie over earlier ones, so of two with one mount point the last counts.
    over = [mount for mount in reversed(mounts) if os.path.commonpath((mount[0], real)) == mount[0]]
    return max(over, key=lambda mount: len(mount[0]))[1] if over else ""


def _mount(line: str) -> tuple[str, str]:
    """(mount point, type) of a line of mountinfo, in which blanks are written as octal escapes."""
    left, _, right = line.partition(" - ")
    point = left.split(" ")[4]
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(escape, character)
    return point, right.split(" ")[0]


def free_bytes(path: str) -> int:
    """What this user may still write on that file system."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


class OwnerLock:
    """The right to be the one broker of a directory, until `release` or the death of the process."""

    def __init__(self, directory: str) -> None:
        """Take it. OwnedError, naming the holder where it is known, if another process has it."""
        self.path = os.path.join(directory, LOCK)
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise DirectoryUnusableError(self.path, unopened(self.path, error)) from None
        try:
            self._take()
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = self._holder()
            who = f"another broker (pid {pid})" if pid else "another broker"
            raise OwnedError(
                self.path,
                f"is held by {who}; stop that one, or choose another directory with --data",
                pid=pid,
            ) from None
        # The number is for people and may not fit on a full disk; the lock is what counts.
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _holder(self) -> int | None:
        text = os.pread(self._fd, 20, 0).strip()
        return int(text) if text.isdigit() else None

    def release(self) -> None:
        """Give it up. The file stays: removing it would let two brokers lock two files of one name."""
        os.close(self._fd)


def taken_again_bytes(low_water_bytes: int) -> int:
    """What has to be free before a full storage is so no longer, if its ballast was given up: `Ballast.fill`
    takes half of what is above the mark, and less than its least does not count."""
    return low_water_bytes + 2 * limits.BALLAST_BYTES_MIN


class Ballast:
    """Space held back for the day the disk is full: then acks and a checkpoint still fit."""

    def __init__(self, directory: str, size_bytes: int = limits.BALLAST_BYTES) -> None:
        self._directory = directory
        self._path = os.path.join(directory, BALLAST)
        self._size_bytes = size_bytes

    def fill(self, *, spare_bytes: int = limits.LOW_WATER_BYTES) -> bool:
        """Take on the ballast if it is missing and `spare_bytes` would still be free; whether it is there.

        On a small disk it is half of what fits, down to `BALLAST_BYTES_MIN`: the other half is for jobs.
        """
        aboard_bytes = self._aboard_bytes()
        if aboard_bytes is None:
            # Not ours; the next start says so. Until then the broker does without.
            return False
        if aboard_bytes >= self._size_bytes:
            return True
        fits_bytes = free_bytes(self._directory) + aboard_bytes - spare_bytes
        wanted_bytes = min(self._size_bytes, fits_bytes // 2)
        least_bytes = min(self._size_bytes, limits.BALLAST_BYTES_MIN)
        if wanted_bytes < self._size_bytes and wanted_bytes < 2 * aboard_bytes:
            # A little more is not worth the writing.
            return aboard_bytes >= least_bytes
        return wanted_bytes >= least_bytes and self._take_on(wanted_bytes)

    def _aboard_bytes(self) -> int | None:
        """How much there is now; None if something else has its name."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return 0
        return status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else None

    def _take_on(self, size_bytes: int) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path, flags, 0o600)
        try:
            # Real blocks, not a hole: a hole gives nothing back.
            os.posix_fallocate(fd, 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            self.release()
            return False
        finally:
            os.close(fd)
        return True

    def release(self) -> bool:
        """Throw it off; whether there was any."""
        try:
            if not stat.S_ISREG(os.lstat(self._path).st_mode):
                return False
            os.unlink(self._path)
        except FileNotFoundError:
            return False
        return True
