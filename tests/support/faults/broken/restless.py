"""A broker that tries at once again when it could not accept anybody."""

from stoker.broker import driver, listener
from stoker.cli.main import main as stoker

NAME = "REST_MS"


def main() -> None:
    """As `stoker`."""
    for module in (driver, listener):
        setattr(module, NAME, 0)
    stoker()
