"""One thing a peer may send, frame or line, and what the broker has to say to it."""

from typing import NamedTuple

from stoker.proto.errors import REFUSALS

ANSWERED = "answered"
"""Stands for any answer that is no refusal."""

IN_THE_BYTES = frozenset(
    {"bad_frame", "frame_too_large", "frame_timeout", "handshake_timeout", "http_refused"}
)
"""What ends a connection. All other refusals cost one request."""

BY_THE_RULES = frozenset(REFUSALS) - IN_THE_BYTES - {"bad_message", "unknown_op", "forbidden", "internal"}
"""Refusals that a message without any fault may get, as things are."""


class Specimen(NamedTuple):
    """Bytes, and the verdicts that are right."""

    name: str
    data: bytes
    request: int
    """Which request the verdict is about; 0 for bytes that are no request."""
    verdicts: frozenset[str]
    """Code words of refusals, or `ANSWERED`. One of them has to come; empty if nothing is to be said."""
    fatal: bool = False
    """The verdict is the last word, and the connection ends."""
    silent: bool = False
    """It may be left unanswered: what it says cannot be known, or it waits for something."""


NAMED = frozenset(REFUSALS) - {"internal"} | {ANSWERED}
"""All that may be said to somebody whose meaning is unknown."""

RIGHT = BY_THE_RULES | {ANSWERED}
"""All that may be said to a message without any fault."""
