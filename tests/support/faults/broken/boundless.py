"""A broker without a bound for a round: whoever is read is heard to the end of what he has said."""

from stoker.broker import intake, listener, poller
from stoker.cli.main import main as stoker

NO_BOUND = 2**40
EVERYBODY = 1024

_BOUNDS = ("FIRST_REQUESTS", "LEAST_REQUESTS", "TURN_REQUESTS", "LOOK_UPS_MAX", "QUEUED_MAX")
_ROUNDS = ("ROUND_REQUESTS", "ROUND_LOOK_UPS", "ROUND_MS", "TURNS_MS", "SHARES_MAX", "RESERVED_BYTES_MAX")


def main() -> None:
    """As `stoker`."""
    for name in (*_BOUNDS, *_ROUNDS):
        assert hasattr(intake, name), name
        setattr(intake, name, NO_BOUND)
    poller.EVENTS_MAX = listener.ACCEPTS_MAX = EVERYBODY
    stoker()
