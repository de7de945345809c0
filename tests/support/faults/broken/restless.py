"""A broker that does not rest when it can accept nobody: the listener stays readable, and it tries again."""

from stoker.broker import main as broker
from stoker.broker.listener import Listener
from stoker.cli.main import main as stoker


class RestlessListener(Listener):
    """See the module."""

    def _out_of_descriptors(self, error: OSError, now_ms: int) -> None:
        return

    def _rest(self, now_ms: int) -> None:
        return


NAME = Listener.__name__


def main() -> None:
    """As `stoker`."""
    setattr(broker, NAME, RestlessListener)
    stoker()
