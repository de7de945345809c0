"""A broker that, after it was stopped itself, judges who is late before it has listened to anybody."""

from stoker.broker import main as broker
from stoker.broker.core.events import TimePassed
from stoker.broker.driver import STALL_MS, Driver
from stoker.cli.main import main as stoker


class ImpatientDriver(Driver):
    """Knows nothing of its own stalls."""

    def _notice_stall(self) -> None:
        if self.now.mono_ms - self._awake_by_ms >= STALL_MS:
            self.step(TimePassed())


def main() -> None:
    """As `stoker`."""
    setattr(broker, Driver.__name__, ImpatientDriver)
    stoker()
