"""The listening socket: made safely, kept in its place, removed when the broker ends.

Order of making, and why:

1. The directory is created private, or checked (`files.prepare_directory`). What others could swap
   under us is no place for a socket.
2. A lock file beside the socket is held before the path is touched. It alone decides whether a
   socket found there is stale: a probe by `connect` cannot tell a frozen broker from a dead one, nor
   a full backlog from an absent listener.
3. Only a socket, and only one of our own, is ever unlinked. Files, directories and symlinks stay,
   and the broker refuses to start.
4. The mode is set on the descriptor before `bind`, to the owner's alone, so that there is no moment,
   under no umask, at which another user could connect who is not to. Only then the group is set, and
   last the mode that was asked for; nobody can connect before `listen`.

A directory that has to be made is one that those can pass through who may connect. One that is there
is left as it is; `closed_to` says so if it keeps them out.

A socket whose path was removed or replaced while the broker runs is bound anew (`keep_in_place`,
called every second); connections that exist are not touched.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat

from .files import prepare_directory
from .permission import unopened
from .refusals import OwnedError, StartRefusedError

PRIVATE_MODE = 0o600
BACKLOG = 1024
LOCK_SUFFIX = ".lock"


class SocketUnusableError(StartRefusedError):
    """The socket cannot be made here, or what is at its path is not ours to remove."""


class ListeningSocket:
    """The socket at `path`, and the lock that makes the path ours."""

    def __init__(self, path: str, *, mode: int = PRIVATE_MODE, gid: int | None = None) -> None:
        """Make it. OwnedError if a live broker has it, another StartRefusedError if it cannot be.

        `gid` is its group; None leaves it this process's.
        """
        self.path = path
        self._mode, self._gid = mode, gid
        self._uid = os.geteuid()
        self._directory = os.path.dirname(path) or "."
        self._prepare_directory()
        self._lock = self._take_lock()
        try:
            self.listener = self._bind()
        except BaseException:
            os.close(self._lock)
            raise

    def _prepare_directory(self) -> None:
        # Who may write to the socket may pass through its directory: 0660 is 0710, 0666 is 0711.
        mode = 0o700 | (self._mode & 0o022) >> 1
        prepare_directory(self._directory, uid=self._uid, mode=mode, gid=self._gid)

    def _take_lock(self) -> int:
        path = self.path + LOCK_SUFFIX
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            lock = os.open(path, flags, 0o600)
        except OSError as error:
            raise SocketUnusableError(path, unopened(path, error)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise OwnedError(
                self.path, "another broker listens here; stop that one, or choose another with --socket"
            ) from None
        return lock

    def _bind(self) -> socket.socket:
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(listener.fileno(), PRIVATE_MODE)
            listener.bind(self.path)
            if self._gid is not None:
                os.chown(self.path, -1, self._gid, follow_symlinks=False)
            os.chmod(self.path, self._mode)
            listener.listen(BACKLOG)
            found = os.lstat(self.path)
        except OSError as error:
            listener.close()
            with contextlib.suppress(StartRefusedError, OSError):
                self._remove_stale()
            raise self._refusal(error) from None
        self._place = (found.st_dev, found.st_ino)
        return listener

    def _refusal(self, error: OSError) -> SocketUnusableError:
        if error.errno == errno.EPERM and self._gid is not None:
            return SocketUnusableError(
                self.path,
                f"cannot be given to group {self._gid}: only root can, or a user who is in it",
            )
        return SocketUnusableError(self.path, f"cannot be made: {error.strerror or error}")

    def closed_to(self) -> str | None:
        """What keeps out those whom the socket's mode lets in, on its directory; None if nothing does."""
        wanted = (self._mode & 0o022) >> 1
        status = os.stat(self._directory)
        # Only its own group is asked about: another one's bits mean other people.
        lacking = wanted & ~status.st_mode
        if self._gid is not None and status.st_gid != self._gid and not status.st_mode & 0o001:
            lacking |= wanted & 0o010
        if not lacking:
            return None
        return f"{self._directory} has mode {stat.S_IMODE(status.st_mode):04o} and group {status.st_gid}"

    def _remove_stale(self) -> None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise SocketUnusableError(
                self.path, "is there already and is no socket; remove it or choose another with --socket"
            )
        if found.st_uid != self._uid:
            raise SocketUnusableError(
                self.path, f"is a socket of uid {found.st_uid}; remove it or choose another with --socket"
            )
        os.unlink(self.path)

    def is_in_place(self) -> bool:
        """Whether the path still leads to this socket."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._place

    def rebind(self) -> socket.socket:
        """Listen anew at the path; returns the old listener, still open, for the caller to close.

        StartRefusedError if that cannot be done now: the old one stays, and the caller tries later.
        """
        self._prepare_directory()
        fresh = self._bind()
        old, self.listener = self.listener, fresh
        return old

    def close(self) -> None:
        """Stop listening, remove the socket if it is still ours, and give the path up.

        The lock file stays: removing it would let two starters each lock a file of that name.
        """
        if self.is_in_place():
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self.listener.close()
        os.close(self._lock)
