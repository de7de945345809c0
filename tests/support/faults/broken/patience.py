"""A broker that waits for ever: for first words, for the rest of a frame, and for answers to be read."""

from stoker.cli.main import main as stoker
from stoker.proto import limits

NEVER_MS = limits.DAY_MS
NO_LIMIT_BYTES = 2**40


def main() -> None:
    """As `stoker`."""
    limits.HANDSHAKE_MS = limits.FRAME_MS_MAX = limits.UNREAD_MS_MAX = NEVER_MS
    limits.UNREAD_BYTES_MAX = NO_LIMIT_BYTES
    stoker()
