"""The settings file: whether it may be believed, what it says and on which line.

A file that a stranger may write is refused, wherever it is: whoever can write it would be setting who
may do what. Where it is: `place`.
"""

import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..proto import limits
from .mistakes import SettingError
from .place import NO_FILE, Place


class File(NamedTuple):
    """A file that was read."""

    path: str
    values: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]
    """Numbers of the lines of tables and keys, by their path. What could be more than one is left out."""

    def where(self, *keys: str) -> str:
        """The file and the line of a key, or of what it is in, as far as that is known."""
        for size in range(len(keys), 0, -1):
            line = self.lines.get(keys[:size])
            if line is not None:
                return f"{self.path}:{line}"
        return self.path


def read(found: Place | None) -> File | None:
    """The file, or None if there is none and none was named. SettingError if it cannot be believed."""
    if found is None or found.path == NO_FILE:
        return None
    try:
        data = _data(found.path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not found.is_named:
            return None
        raise SettingError(f"{found.path}: cannot be read: {error.strerror}") from None
    try:
        text = data.decode()
        values = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SettingError(f"{found.path}: is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise SettingError(f"{found.path}: is not TOML that can be read: nested too deep") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{found.path}: is not TOML: {error}") from None
    return File(found.path, values, lines_of(text))


def _data(path: str) -> bytes:
    # Judged first, because opening a device may act on it; not blocking, or a pipe that has come by that
    # name since would hold the start up for ever.
    _check(path, os.stat(path))
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        # Of what was opened, not of the path: that could lead somewhere else by now.
        _check(path, os.fstat(fd))
        data = file.read(limits.CONFIG_BYTES_MAX + 1)
    if len(data) > limits.CONFIG_BYTES_MAX:
        raise SettingError(f"{path}: has more than {limits.CONFIG_BYTES_MAX} bytes")
    return data


def _check(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingError(f"{path}: is not a regular file")
    # In a user namespace root appears under another number: whoever owns `/` is as good as root.
    if status.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        raise SettingError(
            f"{path}: belongs to uid {status.st_uid}, who could change it; chown it to root or to this user"
        )
    # The group that many systems give each user alone may write: it is the user.
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()):
        raise SettingError(
            f"{path}: is writable by others (mode {stat.S_IMODE(status.st_mode):04o}); chmod go-w it"
        )


# --- lines -------------------------------------------------------------------------------------------------

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')"""
_PATH = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*\[\s*({_PATH})\s*\]").match
_PAIR = re.compile(rf"\s*({_PATH})\s*=").match
_EACH = re.compile(_KEY).findall


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Where tables and keys are. The parser does not say, so this reads lines for what they look like.

    A line within a long text can look like a key; what is found twice is therefore not believed.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if match := _TABLE(line):
            table = _keys(match[1])
            found.setdefault(table, []).append(number)
        elif match := _PAIR(line):
            found.setdefault((*table, *_keys(match[1])), []).append(number)
    return {keys: numbers[0] for keys, numbers in found.items() if len(numbers) == 1}


def _keys(path: str) -> tuple[str, ...]:
    each: Sequence[str] = _EACH(path)
    return tuple(key.strip("\"'") for key in each)
