"""A broker whose wall clock is set from outside, and no other clock with it, as by `date -s`.

For its Python code: nothing else of it asks for the date. libfaketime would do it for the whole process,
but also lengthens the timed waits of threads by up to seconds, which is what is measured here.
"""

import os
import time
from pathlib import Path

from stoker.cli.main import main as stoker

VARIABLE = "WALL_CLOCK_OFFSET_FILE"
"""Names the file that says by how many seconds the wall clock is off."""

_NS = 1_000_000_000


class WallClock:
    """Seen from outside: sets the wall clock of a broker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset_s = 0.0
        self.set(time.time())

    @property
    def now_s(self) -> float:
        """What time it is for that broker."""
        return time.time() + self._offset_s

    def set(self, to_s: float) -> None:
        """Set it, in one piece."""
        self._offset_s = to_s - time.time()
        new = self._path.with_suffix(".new")
        new.write_text(f"{self._offset_s:+.3f}")
        new.replace(self._path)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a broker that is to have this clock."""
        return {VARIABLE: str(self._path)}


def install() -> None:
    """From here on this process has the clock that its environment names."""
    path, real_ns = os.environ[VARIABLE], time.time_ns

    def time_ns() -> int:
        with open(path, encoding="ascii") as file:
            return real_ns() + int(float(file.read()) * _NS)

    time.__dict__.update(time_ns=time_ns, time=lambda: time_ns() / _NS)


def main() -> None:
    """As `stoker`."""
    install()
    stoker()
