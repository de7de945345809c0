"""Files of what a job's program has said, read where the broker says that it keeps them.

Which file it is follows from the numbers of the job alone; what a result says of paths is a worker's word, and not
believed. The directory must be that of the very broker that was asked, which its lock tells: one in a container
may have another under the same name. Links are not followed, and a file must be of who owns the directory.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from ..client.sync import Client
from ..client.values import decode_value
from ..proto import limits
from ..proto.model import COMMAND
from ..proto.statefiles import LACKING, OUTPUT, STREAM_NAMES, broker_pid, file_name
from .escape import escape, escape_lines
from .reading import mapping, mappings

CHUNK_BYTES = 64 * 1024

_CUT_BYTES = 4
"""What a cut through a character takes away at most."""

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class KeptFile(NamedTuple):
    """One stream of the last attempt, open."""

    stream: int
    path: str
    file: BinaryIO

    def chunks(self) -> Iterator[bytes]:
        """All that is in it; closes it."""
        with self.file:
            while data := self.file.read(CHUNK_BYTES):
                yield data

    def lines(self) -> Iterator[str]:
        """The same for a person, under a head that says what it is."""
        with self.file:
            yield f"{STREAM_NAMES[self.stream]} of the last attempt, {escape(self.path)}:"
            # A line that is longer than a chunk is broken there.
            while data := self.file.readline(CHUNK_BYTES):
                for line in escape_lines(data.decode(errors="replace").removesuffix("\n")):
                    yield f"  {line}"


def kept_files(client: Client, job: Mapping[str, Any]) -> list[KeptFile]:
    """Of a job as `show` has it; those that are there and may be read."""
    number, attempt = job.get("number"), job.get("attempt")
    if job.get("kind") != COMMAND or type(number) is not int or type(attempt) is not int:
        return []
    status = client.status()
    data, pid = status.get("data"), status.get("pid")
    if not isinstance(data, str) or not isinstance(pid, int):
        return []
    with suppress(OSError):
        if broker_pid(data) == pid:
            return list(_opened(os.path.join(data, OUTPUT), number, attempt))
    return []


def missing(job: Mapping[str, Any]) -> list[str]:
    """What is not in the files of a job as `show` has it, a line each."""
    result = _result(job)
    dropped = {name: result.get(f"{name}_dropped_bytes") for name in STREAM_NAMES.values()}
    lines = [f"{count} bytes of {name} more were not kept" for name, count in dropped.items() if count]
    reports = [str(row.get("report") or "") for row in mappings(job.get("history"))[-1:]]
    return lines + [line for report in reports for line in report.splitlines() if LACKING in line]


def is_end_only(output: str) -> bool:
    """Whether the output on record may be the end of more."""
    return len(output.encode()) > limits.OUTPUT_BYTES_MAX - _CUT_BYTES


def _result(job: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(job.get("result"), bytes):
        with suppress(ValueError):
            return mapping(decode_value(job["result"]))
    return {}


def _opened(directory: str, number: int, attempt: int) -> Iterator[KeptFile]:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        owner = os.fstat(fd).st_uid
        for stream in STREAM_NAMES:
            name = file_name(number, attempt, stream)
            with suppress(OSError):
                yield KeptFile(stream, os.path.join(directory, name), _regular(fd, name, owner))
    finally:
        os.close(fd)


def _regular(directory: int, name: str, owner: int) -> BinaryIO:
    fd = os.open(name, _FLAGS, dir_fd=directory)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid == owner and status.st_nlink == 1:
        return open(fd, "rb")
    os.close(fd)
    raise PermissionError(name)
