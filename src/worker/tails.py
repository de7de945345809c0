"""The end of what each running attempt says, kept in memory, for pools that send it with the outcome.

The end and not the beginning, because what went wrong is said last. Only between `begin` and `take` is
anything kept of an attempt: threads that outlive theirs leave nothing behind.
"""

from .startpage import Token


class Tail:
    """The end of what something says: at most `bytes_max` when it is looked at, up to twice as much before."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()

    def add(self, data: bytes) -> None:
        """It says something."""
        self._held += data[-self._bytes_max :]
        if len(self._held) > 2 * self._bytes_max:
            del self._held[: -self._bytes_max]

    @property
    def data(self) -> bytes:
        """As it was said."""
        return bytes(self._held[-self._bytes_max :])

    @property
    def text(self) -> str:
        """As text that a message may hold."""
        text = self._held.decode(errors="replace").replace("\0", "\\x00")
        # Both may have made it longer, and a cut may go through a character.
        return text.encode()[-self._bytes_max :].decode(errors="ignore")


class Tails:
    """Those of attempts, by token."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Token, Tail] = {}

    def begin(self, token: Token) -> None:
        """Keep what this attempt says from now on."""
        self._held[token] = Tail(self._bytes_max)

    def add(self, token: Token, data: bytes) -> None:
        """It says something."""
        held = self._held.get(token)
        if held is not None:
            held.add(data)

    def take(self, token: Token) -> str | None:
        """What there is of it; it is forgotten here. None if it never began."""
        held = self._held.pop(token, None)
        return None if held is None else held.text
