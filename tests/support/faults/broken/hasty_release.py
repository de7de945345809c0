"""A broker that frees the jobs of a dead worker without waiting until its supervisor has swept its tree."""

from stoker.broker import main as broker
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.step import Core
from stoker.cli.main import main as stoker
from stoker.proto.model import Outcome


class HastyCore(Core):
    """Takes the death of a worker for the end of all that it started."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        effects = super().step(event, now)
        if not isinstance(event, ev.PeerExited):
            return effects
        for worker in [worker for worker in self._registry.workers.values() if worker.dead]:
            for lease in list(worker.leases.values()):
                self._leasing.end(lease, Outcome.CRASH, reason="the worker died")
        # A step more, for what that led to.
        return [*effects, *super().step(ev.TimePassed(), now)]


def main() -> None:
    """As `stoker`."""
    setattr(broker, Core.__name__, HastyCore)
    stoker()
