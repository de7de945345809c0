"""A broker that takes every error of its disk for a full one, and so tries again what must not be tried again."""

from stoker.broker.sqlite import errors
from stoker.cli.main import main as stoker


def is_full(error: Exception, system_errno: int) -> bool:
    """Whatever it is."""
    return True


def main() -> None:
    """As `stoker`."""
    errors.is_full = is_full
    stoker()
