"""The end of what each running attempt says, kept in memory, for pools that send it with the outcome.

The end and not the beginning, because what went wrong is said last. Only between `begin` and `take` is
anything kept of an attempt: threads that outlive theirs leave nothing behind.
"""

from .startpage import Token


class Tails:
    """By token, at most `bytes_max` of each when it is taken; up to twice as much before."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[Token, bytearray] = {}

    def begin(self, token: Token) -> None:
        """Keep what this attempt says from now on."""
        self._held[token] = bytearray()

    def add(self, token: Token, data: bytes) -> None:
        """It says something."""
        held = self._held.get(token)
        if held is not None:
            held += data[-self._bytes_max :]
            if len(held) > 2 * self._bytes_max:
                del held[: -self._bytes_max]

    def take(self, token: Token) -> str | None:
        """What there is of it, as text that a message may hold; it is forgotten here. None if it never began."""
        held = self._held.pop(token, None)
        if held is None:
            return None
        return tail_text(bytes(held), self._bytes_max)


def tail_text(data: bytes, bytes_max: int) -> str:
    """The end of what was said, as text that a message may hold."""
    text = data.decode(errors="replace").replace("\0", "\\x00")
    # Both may have made it longer, and a cut may go through a character.
    return text.encode()[-bytes_max:].decode(errors="ignore")
