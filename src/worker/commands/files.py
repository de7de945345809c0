"""What a program writes, kept in files: each stream of each attempt in one of its own, up to a number of bytes.

The directory is the broker's (`proto.statefiles`): it makes it, and removes what is in it with the job. So a pool
keeps files only if it is of the broker's user, and only in the directory of the broker that it is connected
to: in that of another one they would be taken for those of other jobs. That is looked at for each attempt, before
anything of it starts; what stands in the way is a ProgramError that says what to do.

What does not fit, because of the cap, the disk or any other trouble, is dropped and counted; the program goes on, and
what is in the file is always the beginning, without a hole. Nothing is synced. Writes do not wait for the disk as
long as the kernel has memory for them, and are never longer than what was read of a pipe at once.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...config.durations import format_size
from ...proto import limits
from ...proto.statefiles import LACKING, OUTPUT, STREAM_NAMES, broker_pid, file_name
from .program import ProgramError

_FOR_GOOD = frozenset(
    {errno.EACCES, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG}
)
"""That nothing can be made there is no matter of this attempt."""

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The machine is short of something: the attempt is somebody else's, or comes later."""

_OTHERS = 0o077
_CREDENTIALS = struct.Struct("3i")

OpenFiles = Callable[[int], "OutputFiles"]
"""Makes the files of an attempt, of so many bytes each. ProgramError if this pool cannot; OSError if it cannot now."""


def peer_pid(fd: int) -> int:
    """Who listens at the other end of a connected Unix socket; 0 for a process of elsewhere."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    return pid


class OutputDirectory:
    """Where the workers of a pool keep what programs say."""

    def __init__(self, data: bytes, low_water_bytes: int) -> None:
        """`data`: the state directory, empty if it is not known. Below `low_water_bytes` free nothing more is written:
        the rest of the disk is the journal's."""
        self._data = data
        self._low_water_bytes = low_water_bytes
        self._path = os.path.join(data, OUTPUT.encode())
        self.broker_pid = 0
        """Whom this worker is connected to; 0 if nobody can tell."""

    def open(self, number: int, attempt: int, bytes_max: int) -> "OutputFiles":
        """See `OpenFiles`. What an earlier run of the same attempt has left is replaced."""
        if not self._data:
            raise _refusal("this pool does not know the state directory")
        files = OutputFiles(bytes_max, self._low_water_bytes)
        try:
            directory = self._open_directory()
            try:
                self._remove_old(directory, number, attempt)
                for stream in STREAM_NAMES:
                    files.add_file(stream, self._path, directory, file_name(number, attempt, stream))
            finally:
                os.close(directory)
        except OSError as error:
            files.close()
            if error.errno in _FOR_GOOD:
                raise _refusal(f"{_shown(self._path)}: {error.strerror}") from None
            raise
        except BaseException:
            files.close()
            raise
        return files

    def _open_directory(self) -> int:
        pid = broker_pid(self._data)
        if pid and self.broker_pid and pid != self.broker_pid:
            raise _refusal(f"{_shown(self._data)} is not that of this pool's broker")
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() and not status.st_mode & _OTHERS:
            return fd
        os.close(fd)
        raise _refusal(
            f"{_shown(self._path)} is not this user's alone (uid {status.st_uid}, mode {status.st_mode & 0o7777:04o})"
        )

    @staticmethod
    def _remove_old(directory: int, number: int, attempt: int) -> None:
        """Of a job that is tried for ever the files of as many attempts are kept as there are records of."""
        for stream in STREAM_NAMES:
            with suppress(FileNotFoundError):
                os.unlink(file_name(number, attempt - limits.OUTCOMES_KEPT, stream), dir_fd=directory)


class OutputFiles:
    """The two files of one attempt. `add` never raises, whatever becomes of the disk."""

    def __init__(self, bytes_max: int, low_water_bytes: int) -> None:
        self._bytes_max = bytes_max
        self._low_water_bytes = low_water_bytes
        self._files: dict[int, _File] = {}

    def add_file(self, stream: int, path: bytes, directory: int, name: str) -> None:
        """Make one, in the open `directory` that is called `path`."""
        shown = _shown(os.path.join(path, name.encode()))
        self._files[stream] = _File(shown, directory, name, self._bytes_max, self._low_water_bytes)

    def add(self, stream: int, data: bytes) -> None:
        """It has written something."""
        self._files[stream].add(data)

    def close(self) -> None:
        """All has been written."""
        for file in self._files.values():
            file.close()

    @property
    def result(self) -> Mapping[str, Any]:
        """For the result of the job: where they are, and what is not in them."""
        said: dict[str, Any] = {}
        for name, file in self._named():
            said[f"{name}_file"] = file.path
            said[f"{name}_dropped_bytes"] = file.dropped_bytes
            if file.trouble:
                said[f"{name}_file_error"] = file.trouble
        return said

    @property
    def notes(self) -> list[str]:
        """The same for a person, a line each."""
        return [f"its {name} is in {file.path}{file.lacking}" for name, file in self._named()]

    def _named(self) -> Iterator[tuple[str, "_File"]]:
        return ((STREAM_NAMES[stream], file) for stream, file in self._files.items())


class _File:
    """The beginning of one stream."""

    def __init__(self, path: str, directory: int, name: str, bytes_max: int, low_water_bytes: int) -> None:
        self.path = path
        self.dropped_bytes = 0
        self.trouble = ""
        """Why nothing more is written, if it is not for the cap."""
        self._bytes_max = bytes_max
        self._low_water_bytes = low_water_bytes
        self._left_bytes = bytes_max
        self._fd = -1
        try:
            self._fd = _create(directory, name)
        except OSError as error:
            if error.errno in _FOR_GOOD | _PASSING:
                raise
            self.trouble = words_of(error)

    def add(self, data: bytes) -> None:
        kept = memoryview(data)[: self._left_bytes]
        written_bytes = self._write(kept) if kept and self._fd >= 0 else 0
        self._left_bytes -= written_bytes
        self.dropped_bytes += len(data) - written_bytes
        if not self._left_bytes:
            self.close()

    def _write(self, data: memoryview) -> int:
        """How much of it; less than all only if nothing more can be."""
        written_bytes = 0
        try:
            room = os.fstatvfs(self._fd)
            if room.f_bavail * room.f_frsize < self._low_water_bytes:
                self._give_up(f"less than {format_size(self._low_water_bytes)} are free")
                return 0
            while written_bytes < len(data):
                written_bytes += os.write(self._fd, data[written_bytes:])
        except OSError as error:
            self._give_up(words_of(error))
        return written_bytes

    def _give_up(self, why: str) -> None:
        self.trouble = why
        self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # What a disk says only now, it says of bytes that were taken: nothing can be counted any more.
            with suppress(OSError):
                os.close(fd)

    @property
    def lacking(self) -> str:
        if not self.dropped_bytes:
            return f" ({self.trouble})" if self.trouble else ""
        why = self.trouble or f"more than {format_size(self._bytes_max)}"
        return f"{LACKING}{self.dropped_bytes} bytes: {why}"


def _create(directory: int, name: str) -> int:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=directory)
    # Whatever umask the app has set.
    os.fchmod(fd, 0o600)
    return fd


def nowhere(bytes_max: int) -> OutputFiles:
    """For a worker that keeps no files."""
    return OutputDirectory(b"", 0).open(0, 0, bytes_max)


def _refusal(why: str) -> ProgramError:
    return ProgramError(
        f"output cannot be kept in files by this pool: {why}; run it as the user of its broker, with the --data of that"
    )


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def words_of(error: OSError) -> str:
    """`ENOENT: No such file or directory`."""
    return f"{errno.errorcode.get(error.errno or 0, type(error).__name__)}: {error.strerror}"
