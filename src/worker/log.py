"""One line on stderr for each decision of the pool, as an event name and fields; never payloads.

Nobody may wait for whoever reads stderr: a full pipe with a stopped reader must hold up neither
respawns nor jobs. The supervisor hands its lines to a `Writer`, whose thread may get stuck alone; a
worker, which has no threads, writes a line only if the pipe has room.
"""

import json
import os
import queue
import select
import threading
import time

LINE_BYTES_MAX = 4000
"""Below PIPE_BUF, so that lines of several processes never mix."""

VALUE_CHARACTERS_MAX = 300

LINES_WAITING_MAX = 1000
"""Beyond it lines are dropped: who does not read has chosen to miss some."""

_STDERR = 2


def line(event: str, **fields: object) -> bytes:
    """`time pool event name=value ...`, one line of ASCII whatever the values hold, like the broker's."""
    at = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at * 1000) % 1000:03d}Z"
    pairs = [f"{name}={_shown(value)}" for name, value in fields.items() if value is not None]
    return " ".join([stamp, "pool", event, *pairs]).encode("ascii")[:LINE_BYTES_MAX] + b"\n"


def say(event: str, **fields: object) -> None:
    """Write a line if stderr has room for it now."""
    write(line(event, **fields))


def write(data: bytes) -> None:
    """Write the beginning of a text if stderr has room for it now."""
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    try:
        if poll.poll(0):
            os.write(_STDERR, data[: LINE_BYTES_MAX + 1])
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
        self.write(line(event, **fields))

    def write(self, data: bytes) -> None:
        """The same for text of more lines."""
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


def _shown(value: object) -> str:
    text = str(value)
    if len(text) > VALUE_CHARACTERS_MAX:
        text = text[:VALUE_CHARACTERS_MAX] + "..."
    if text and text.isascii() and text.isprintable() and not set(text) & set(' "=\\'):
        return text
    # json leaves DEL alone, which terminals act on.
    return json.dumps(text).replace("\x7f", "\\u007f")
