"""A broker whose count of dead jobs grows by one with each late ack."""

from stoker.broker import main as broker
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.step import Core
from stoker.cli.main import main as stoker
from stoker.proto import work
from stoker.proto.model import State


class DriftingCore(Core):
    """Counts what it refuses."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        if isinstance(event, ev.Received) and isinstance(event.message, work.Ack):
            token = (event.message.token[0], event.message.token[1])
            if token not in self._leasing.leases:
                for queue in self._memory.queues.values():
                    queue.counts[State.DEAD] += 1
        return super().step(event, now)


def main() -> None:
    """As `stoker`."""
    setattr(broker, Core.__name__, DriftingCore)
    stoker()
