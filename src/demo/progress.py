"""A progress bar on stderr: one line redrawn on a terminal, one line each quarter elsewhere."""

import sys
from typing import TextIO

WIDTH = 40


class Progress:
    """`show` may be called as often as one likes; it writes only what changed."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._drawn = ""
        self._quarter = -1

    def show(self, done: int) -> None:
        quarter = 4 * done // max(self._total, 1)
        if self._live:
            bar = "#" * (WIDTH * done // max(self._total, 1))
            self._draw(f"[{bar:.<{WIDTH}}] {done}/{self._total}")
        elif quarter != self._quarter:
            self._quarter = quarter
            self._write(f"{done}/{self._total} done\n")

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self._write(f"\r{text:<{len(self._drawn)}}\n" if self._live else f"{text}\n")
        self._drawn = ""

    def close(self) -> None:
        """Leave the bar as it is and go to the next line."""
        if self._drawn:
            self._write("\n")
            self._drawn = ""

    def _draw(self, line: str) -> None:
        if line != self._drawn:
            self._write(f"\r{line}")
            self._drawn = line

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
