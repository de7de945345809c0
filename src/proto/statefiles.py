"""Names in the state directory that more than the broker knows: its lock, and what programs have said.

    broker.lock                              who is the broker, by pid
    output/<number>-<attempt>.stdout         of a job that asked for it, written by its worker, removed
    output/<number>-<attempt>.stderr         by the broker when the job's row goes

Numbers and attempts are the broker's own, so no name that a submitter chose is ever a part of a path. Whoever opens
something here says who may have put it there; this room only names it.
"""

import os

from . import limits, messages

LOCK = "broker.lock"
OUTPUT = "output"

STREAM_NAMES = {messages.STDOUT: "stdout", messages.STDERR: "stderr"}

LACKING = ", without the last "
"""In the report of an attempt that failed: so many bytes are not in a file of it."""

_PID_BYTES = 20


def file_name(number: int, attempt: int, stream: int) -> str:
    """What one stream of an attempt is called."""
    return f"{number}-{attempt}.{STREAM_NAMES[stream]}"


def number_of(name: str) -> int | None:
    """Of which job a file is; None if it is nothing that a worker has made."""
    number, _, rest = name.partition("-")
    attempt, _, stream = rest.partition(".")
    if stream not in STREAM_NAMES.values() or not all(_is_number(text) for text in (number, attempt)):
        return None
    return int(number)


def _is_number(text: str) -> bool:
    """As `file_name` writes one. Longer ones are of nobody's making, and no column takes them."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(limits.INTEGER_MAX))


def broker_pid(data: str | bytes) -> int:
    """The broker that has this state directory or had it last, in its own PID namespace.

    0 if it did not write that down, for which a full disk is a reason. OSError if no broker was ever here.
    """
    path = os.path.join(os.fsencode(data), LOCK.encode())
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        text = os.read(fd, _PID_BYTES).strip()
    finally:
        os.close(fd)
    return int(text) if text.isdigit() else 0
