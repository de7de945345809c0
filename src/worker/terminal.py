"""A SIGHUP that is meant, told from the one that a terminal sends to everybody in it as it goes away.

A process whose terminal hangs up has none any more by the time of the signal. So the first SIGHUP after which
the terminal it had is gone is that one; all others were sent by somebody.
"""

import signal

_TERMINAL = 4
"""Which field of /proc/self/stat it is, counted after the name."""


class Terminal:
    """To be made before SIGHUP gets a handler: under `nohup` it is ignored, and a hang-up is nothing then."""

    def __init__(self) -> None:
        self.is_heeded = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._had = _has()

    def has_hung_up(self) -> bool:
        """Asked at a SIGHUP: whether it was the terminal's."""
        had, self._had = self._had, _has()
        return had and not self._had


def _has() -> bool:
    with open("/proc/self/stat", "rb") as file:
        text = file.read()
    return text[text.rindex(b")") + 2 :].split()[_TERMINAL] != b"0"
