"""The listening socket: made safely, kept in its place, removed when the broker ends.

Order of making, and why:

1. The directory is created private, or checked (`files.prepare_directory`). What others could swap
   under us is no place for a socket.
2. A lock file beside the socket is held before the path is touched. It alone decides whether a
   socket found there is stale: a probe by `connect` cannot tell a frozen broker from a dead one, nor
   a full backlog from an absent listener.
3. Only a socket, and only one of our own, is ever unlinked. Files, directories and symlinks stay,
   and the broker refuses to start.
4. The mode is set on the descriptor before `bind`, so that there is no moment, under no umask, at
   which another user could connect.

A socket whose path was removed or replaced while the broker runs is bound anew (`keep_in_place`,
called every second); connections that exist are not touched.
"""

import contextlib
import fcntl
import os
import socket
import stat

from .files import prepare_directory
from .refusals import OwnedError, StartRefusedError

SOCKET_MODE = 0o600
BACKLOG = 1024
_LOCK_SUFFIX = ".lock"


class SocketUnusableError(StartRefusedError):
    """The socket cannot be made here, or what is at its path is not ours to remove."""


class ListeningSocket:
    """The socket at `path`, and the lock that makes the path ours."""

    def __init__(self, path: str) -> None:
        """Make it. OwnedError if a live broker has it, another StartRefusedError if it cannot be."""
        self.path = path
        self._uid = os.geteuid()
        self._directory = os.path.dirname(path) or "."
        prepare_directory(self._directory, uid=self._uid)
        self._lock = self._take_lock()
        try:
            self.listener = self._bind()
        except BaseException:
            os.close(self._lock)
            raise

    def _take_lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            lock = os.open(self.path + _LOCK_SUFFIX, flags, 0o600)
        except OSError as error:
            raise SocketUnusableError(
                self.path + _LOCK_SUFFIX, f"cannot be opened: {error.strerror}"
            ) from None
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
            os.fchmod(listener.fileno(), SOCKET_MODE)
            listener.bind(self.path)
            listener.listen(BACKLOG)
            found = os.lstat(self.path)
        except OSError as error:
            listener.close()
            raise SocketUnusableError(self.path, f"cannot be made: {error.strerror or error}") from None
        self._place = (found.st_dev, found.st_ino)
        return listener

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
        prepare_directory(self._directory, uid=self._uid)
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
