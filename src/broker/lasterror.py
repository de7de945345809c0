"""The last storage error of a broker, in a file beside the journal.

`status` shows it, also when no broker runs; the next start reads it to know that the file should be
looked at whole. Writing it is best effort: the disk may be what failed.

That a later start came up does not mean that all is well again: it has not looked at everything (`START_LOOKS`).
So the error stays on record until a person removes it, and with it what was said to be damaged, which a later
error must not hide.
"""

import json
import os
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from .refusals import FileForeignError, JournalLostEarlierError
from .regular import open_regular
from .whereabouts import GONE, Inodes, missing_of

LAST_ERROR = "last_error"

START_LOOKS = "a start looks at the structure of the file and at the jobs that wait, not at payloads"
"""What the checks of a start that follows an error amount to, for people."""


class LastError(NamedTuple):
    at_ms: int
    exit_word: str
    message: str
    recovered_at_ms: int = 0
    """When a later start had come up on the journal; 0 while none has. See `START_LOOKS`."""
    lost_files: Inodes = ()
    """Of a journal whose files had been removed or replaced: without them nothing is whole."""
    damage: str = ""
    """The last that was found damaged, by this error or by one before it."""


def write_last_error(directory: str, error: LastError) -> bool:
    """Write it down, in place of an earlier one; False if even that cannot be written."""
    path = os.path.join(directory, LAST_ERROR)
    body = json.dumps(error._asdict()) + "\n"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            # Not ours to replace.
            return False
        fd = os.open(f"{path}.new", flags, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(body)
        os.replace(f"{path}.new", path)
    except OSError:
        return False
    return True


def read_last_error(directory: str) -> LastError | None:
    """The last one, or None if there is none. A file that makes no sense counts as an error too."""
    path = os.path.join(directory, LAST_ERROR)
    try:
        with open(open_regular(path), "rb") as file:
            text = file.read(64 * 1024).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return LastError(0, "STORAGE", f"{path} cannot be read: {error.strerror}")
    except FileForeignError as error:
        return LastError(0, "STORAGE", str(error))
    with suppress(ValueError, TypeError, KeyError):
        fields: dict[str, Any] = json.loads(text)
        return LastError(
            int(fields["at_ms"]),
            str(fields["exit_word"]),
            str(fields["message"]),
            int(fields["recovered_at_ms"]),
            # A release that did not know of it has not written it.
            tuple((str(name), int(inode)) for name, inode in fields.get("lost_files", ())),
            str(fields.get("damage", "")),
        )
    return LastError(0, "STORAGE", f"{path} is not readable as an error; it begins {text[:80]!r}")


def mark_recovered(directory: str, at_ms: int) -> bool:
    """Note that a start has come up since. The error stays, for people."""
    error = read_last_error(directory)
    return error is None or write_last_error(directory, error._replace(recovered_at_ms=at_ms))


def still_lost(directory: str) -> Inodes:
    """What an error on record said was lost, while no start has been on it since: a later error takes it over."""
    error = read_last_error(directory)
    return error.lost_files if error is not None and not error.recovered_at_ms else ()


def still_damaged(directory: str) -> str:
    """What the error on record knows to be damaged. No start says that it is not."""
    error = read_last_error(directory)
    return error.damage if error is not None else ""


def account(error: LastError) -> str:
    """What happened, on one line: also what was damaged before, where the last error is about something else."""
    earlier = f"; before that {error.damage}" if error.damage and error.damage != error.message else ""
    return f"{error.message}{earlier}"


def refuse_lost(directory: str, error: LastError) -> None:
    """JournalLostEarlierError if files that were lost are not back: going on without them is for a person to say.

    A start would else begin with what lies there now, or with nothing, and nobody would hear of what is gone.
    """
    note = os.path.join(directory, LAST_ERROR)
    for name, inode in error.lost_files:
        if inode == GONE:
            raise JournalLostEarlierError(
                os.path.join(directory, name),
                f"was cut short or written over under the last broker; restore a snapshot, and remove {note}, "
                "or remove only that to go on with what is there",
            )
    path = missing_of(directory, error.lost_files)
    if path is not None:
        raise JournalLostEarlierError(
            path,
            f"is not the file that the last broker wrote to; bring that one back, or remove {note} to go on "
            "with what is there",
        )
