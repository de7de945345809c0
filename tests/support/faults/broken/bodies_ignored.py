"""A broker that knows jobs by their ids alone, and takes any body for the first one."""

from stoker.broker.core import enqueueing
from stoker.cli.main import main as stoker
from stoker.proto.messages import Enqueue


def nothing_of(message: Enqueue) -> bytes:
    """In place of a digest of the body."""
    return bytes(16)


def main() -> None:
    """As `stoker`."""
    setattr(enqueueing, enqueueing.body_hash.__name__, nothing_of)
    stoker()
