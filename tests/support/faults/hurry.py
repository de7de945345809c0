"""A broker all of whose deadlines for connections are a tenth, so that a short test sees each of them pass."""

from stoker.cli.main import main as stoker
from stoker.proto import limits

TIMES = 10


def main() -> None:
    """As `stoker`."""
    limits.HANDSHAKE_MS //= TIMES
    limits.FRAME_MS_MAX //= TIMES
    limits.UNREAD_MS_MAX //= TIMES
    stoker()
