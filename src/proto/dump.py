"""`socat -x` output back to the bytes it shows, for `decode.py`.

socat writes one block for each transfer: a line with the direction, the time and `length=N`, then
lines of hex pairs (with `-v` also the text beside them), then perhaps `--`. The length says where
the pairs of a block end, so the text beside them is never mistaken for more of them.
"""

import re

_HEADER = re.compile(rb"([<>]) \d{4}/\d\d/\d\d .*\blength=(\d{1,12})\b")
_PAIRS = re.compile(rb"(?: [0-9a-f]{2})+")


def is_dump(data: bytes) -> bool:
    """No frame and no line of the protocol begins like this."""
    return data.startswith((b"> ", b"< "))


class DumpReader:
    """Takes the lines of a dump, gives (direction, bytes): `>` for towards the broker, `<` for back."""

    __slots__ = ("_direction", "_left")

    def __init__(self) -> None:
        self._direction = ">"
        self._left = 0

    def line(self, line: bytes) -> tuple[str, bytes]:
        """The bytes that one line shows; none for lines that are no part of a block."""
        header = _HEADER.match(line)
        if header is not None:
            self._direction, self._left = header[1].decode("ascii"), int(header[2])
            return self._direction, b""
        pairs = _PAIRS.match(line)
        shown = bytes.fromhex(pairs[0].decode("ascii"))[: self._left] if pairs else b""
        self._left -= len(shown)
        return self._direction, shown
