"""One line on stderr for each decision of the pool, as an event name and fields; never payloads.

`config.logline` has the form of lines, and `set_form` says which of them this process uses. Nobody may
wait for whoever reads stderr: a full pipe with a stopped reader must hold up neither respawns nor jobs. The
supervisor hands its lines to a `Writer`, whose thread may get stuck alone; a worker, which has no threads,
writes a line only if the pipe has room.
"""

import os
import queue
import select
import threading
import time

from ..config import logline
from ..config.logline import JSON, LINE_BYTES_MAX, LOGFMT

LINES_WAITING_MAX = 1000
"""Beyond it lines are dropped: who does not read has chosen to miss some."""

_STDERR = 2

_SOURCE = "pool"

_form = LOGFMT


def set_form(form: str) -> None:
    """For the process and those it forks."""
    global _form
    _form = form


def line(event: str, **fields: object) -> bytes:
    """`time pool event name=value ...`, one line of ASCII whatever the values hold, like the broker's."""
    said = {name: value for name, value in fields.items() if value is not None}
    return logline.line(_form, logline.moment(time.time()), _SOURCE, event, said)


def shaped(text: bytes) -> bytes:
    """Text of more lines, as a traceback: each line an event `text` if a machine reads the log."""
    if _form != JSON:
        return text
    return b"".join(line("text", text=each) for each in text.decode(errors="replace").splitlines())


def say(event: str, **fields: object) -> None:
    """Write a line if stderr has room for it now."""
    _put(line(event, **fields))


def write(text: bytes) -> None:
    """Write the beginning of a text if stderr has room for it now: as much as does not mix with others'."""
    data = shaped(text)
    end = data.rfind(b"\n", 0, LINE_BYTES_MAX + 1) + 1
    _put(data[: end or LINE_BYTES_MAX])


def _put(data: bytes) -> None:
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(_STDERR, data)
    except OSError:
        # No stderr, or nobody at its other end: then nobody wants to know.
        return


class Writer:
    """Writes lines from a thread of its own. Not for a process that forks."""

    def __init__(self, fd: int = _STDERR) -> None:
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(LINES_WAITING_MAX)
        self._thread = threading.Thread(target=self._write, name="stoker log", daemon=True)
        self._thread.start()

    def say(self, event: str, **fields: object) -> None:
        """Have a line written; dropped if too many wait."""
        self._put(line(event, **fields))

    def write(self, text: bytes) -> None:
        """The same for text of more lines."""
        self._put(shaped(text))

    def _put(self, data: bytes) -> None:
        try:
            self._lines.put_nowait(data)
        except queue.Full:
            return

    @property
    def is_idle(self) -> bool:
        """Nothing waits to be written."""
        return self._lines.empty()

    def close(self, within_s: float = 0.5) -> None:
        """Write what waits, for at most so long."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(within_s)

    def _write(self) -> None:
        while (data := self._lines.get()) is not None:
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                continue
