"""What handlers print: whole lines, each with the job it belongs to, and the end of it kept if wanted.

    sys.stdout, sys.stderr ──► Outlet ──► lines with kind, id and attempt ──► the descriptor
                                 └──────► the attempt's tail (`tails`)

A line appears when it is complete, when the handler flushes, or when the attempt ends, and leaves by one
write that a pipe takes whole: so lines of different workers, threads and tasks never mix. One that is longer
than such a write is broken into several. What cannot be written is lost, and no job fails for it.

The streams of the interpreter are replaced when the start hooks have run. So logging that the app has set
up by then keeps the streams that it was given, and its lines stay as its formatter made them. Whatever
writes to the descriptors themselves (programs that a handler starts, C code, `faulthandler`) is out of reach.
"""

import io
import os
import select
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard

from ..config import logline
from ..config.logline import JSON
from .context import CurrentJob, running_job
from .startpage import Token
from .tails import Tails

PIPE_BYTES = select.PIPE_BUF
"""What a pipe takes whole."""

PARTIAL_BYTES_MAX = PIPE_BYTES
"""A line that is longer is not waited for."""

PARTIALS_MAX = 1000
"""Unfinished lines, most of them of threads that have ended."""

_JSON_CHARACTERS = 250
"""Of a piece of a line that is too long: in JSON a character takes up to 12 bytes."""

_NAMES = {1: "stdout", 2: "stderr"}

_Key = tuple[Token | None, int]
"""Attempt and thread."""


class OutputRules(NamedTuple):
    """How a pool deals with what its handlers print."""

    attributed: bool = True
    """Each line says whose it is."""
    capture_bytes: int = 0
    """How much of the end of an attempt's output goes to the broker."""
    form: str = logline.LOGFMT
    """Of the pool's log, and of attributed lines."""


OUTPUT_DEFAULT = OutputRules()


def attribution(job: CurrentJob) -> str:
    """What stands before a line of a job."""
    return f"[{job.kind} {job.id} {job.attempt}] "


class Outlet(io.BufferedIOBase):
    """What is below `sys.stdout` or `sys.stderr`. Not the owner of the descriptor: to close it does nothing."""

    def __init__(self, stream: io.TextIOWrapper, rules: OutputRules, tails: Tails | None) -> None:
        self._stream = stream
        self.name = stream.name
        self._fd = stream.fileno()
        self._rules = rules
        self._tails = tails
        self._partials: dict[_Key, tuple[CurrentJob | None, bytes]] = {}

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def close(self) -> None:
        self.flush()

    def write(self, data: Any) -> int:
        """Bytes of the current job, or of nobody."""
        job, text = running_job(), bytes(data)
        if job is not None and self._tails is not None:
            self._tails.add(job.token, text)
        if self._rules.attributed:
            self._write_lines(job, text)
        else:
            _put(self._fd, text)
        return len(text)

    def flush(self) -> None:
        """Also of the stream that this one took the place of: others may still write to it."""
        job = running_job()
        self._finish((job.token if job is not None else None, threading.get_ident()))
        self._stream.flush()

    def end(self, token: Token) -> None:
        """The attempt is over: write what it left unfinished."""
        if self._partials:
            for key in [key for key in self._partials if key[0] == token]:
                self._finish(key)

    def _write_lines(self, job: CurrentJob | None, text: bytes) -> None:
        key = (job.token if job is not None else None, threading.get_ident())
        # Taken out before anything can raise: whatever a strike interrupts is never written twice.
        _, before = self._partials.pop(key, (None, b""))
        text = before + text
        end = text.rfind(b"\n") + 1
        if len(text) - end > PARTIAL_BYTES_MAX:
            end = len(text)
        if end < len(text):
            if len(self._partials) >= PARTIALS_MAX:
                self._finish(next(iter(self._partials)))
            self._partials[key] = job, text[end:]
        if end:
            self._put_lines(job, text[:end])

    def _finish(self, key: _Key) -> None:
        job, text = self._partials.pop(key, (None, b""))
        if text:
            self._put_lines(job, text)

    def _put_lines(self, job: CurrentJob | None, text: bytes) -> None:
        """Write lines, as many at once as a pipe takes whole."""
        gathered = b""
        for line in text.removesuffix(b"\n").split(b"\n"):
            # A progress bar goes back to the beginning of its line, where now something stands.
            for shaped in self._shaped(job, line.strip(b"\r")):
                if len(gathered) + len(shaped) > PIPE_BYTES:
                    _put(self._fd, gathered)
                    gathered = b""
                gathered += shaped
        _put(self._fd, gathered)

    def _shaped(self, job: CurrentJob | None, line: bytes) -> Iterator[bytes]:
        if self._rules.form == JSON:
            return self._as_json(job, line.decode(errors="replace"))
        return _as_text(attribution(job).encode() if job is not None else b"", line)

    def _as_json(self, job: CurrentJob | None, line: str) -> Iterator[bytes]:
        stamp, fields = logline.moment(time.time()), {}
        if job is not None:
            fields = {"kind": job.kind, "id": job.id, "attempt": job.attempt}
        fields["stream"] = _NAMES.get(self._fd, "other")
        whole = len(line) <= _JSON_CHARACTERS
        for piece in [line] if whole else _pieces(line, _JSON_CHARACTERS):
            yield logline.line(JSON, stamp, "job", "output", {**fields, "line": piece})


def _is_interpreters(stream: object) -> TypeGuard[io.TextIOWrapper]:
    return isinstance(stream, io.TextIOWrapper) and stream in (sys.__stdout__, sys.__stderr__)


def _as_text(head: bytes, line: bytes) -> Iterator[bytes]:
    room = PIPE_BYTES - len(head) - 1
    while len(line) > room:
        end = room
        while end > 1 and line[end] & 0xC0 == 0x80:
            end -= 1
        yield head + line[:end] + b"\n"
        line = line[end:]
    yield head + line + b"\n"


def _pieces(text: str, characters: int) -> list[str]:
    return [text[at : at + characters] for at in range(0, len(text), characters)]


def _put(fd: int, data: bytes) -> None:
    try:
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(fd, select.POLLOUT)
                poll.poll()
    except OSError:
        return


class JobOutput:
    """The output of one worker's jobs."""

    def __init__(self, rules: OutputRules) -> None:
        self.rules = rules
        self._tails = Tails(rules.capture_bytes) if rules.capture_bytes else None
        self._outlets: list[Outlet] = []
        self._plain: tuple[Any, Any] = (sys.stdout, sys.stderr)

    @property
    def captures(self) -> bool:
        """What attempts say is kept."""
        return self._tails is not None

    def install(self) -> None:
        """Take the place of the interpreter's own streams. What the app has put there instead stays."""
        self._plain = sys.stdout, sys.stderr
        if self.rules.attributed or self.captures:
            sys.stdout, sys.stderr = self._over(sys.stdout), self._over(sys.stderr)

    def _over(self, stream: Any) -> Any:
        if not _is_interpreters(stream):
            return stream
        outlet = Outlet(stream, self.rules, self._tails)
        self._outlets.append(outlet)
        return io.TextIOWrapper(
            outlet, encoding=stream.encoding, errors=stream.errors, newline="\n", write_through=True
        )

    @contextmanager
    def aside(self) -> Generator[None]:
        """Have the streams as the app's start hooks find them."""
        ours = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self._plain
        try:
            yield
        finally:
            if (sys.stdout, sys.stderr) == self._plain:
                sys.stdout, sys.stderr = ours

    def begin(self, token: Token) -> None:
        """An attempt starts."""
        if self._tails is not None:
            self._tails.begin(token)

    def say(self, token: Token, text: str) -> None:
        """Something that an attempt said by another way than these streams."""
        if self._tails is not None:
            self._tails.add(token, text.encode(errors="backslashreplace"))

    def end(self, token: Token) -> str | None:
        """It is over: the end of what it said, None if nothing is kept."""
        for outlet in self._outlets:
            outlet.end(token)
        return self._tails.take(token) if self._tails is not None else None
