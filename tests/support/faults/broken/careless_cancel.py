"""A broker that calls a job cancelled although it runs, and lets it run."""

from stoker.broker import main as broker
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.step import Core
from stoker.cli.main import main as stoker
from stoker.proto import messages
from stoker.proto.model import State


class CarelessCore(Core):
    """Answers for what it has not done."""

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        if isinstance(event, ev.Received) and isinstance(event.message, messages.Cancel):
            wanted = event.message.id
            if any(job.id == wanted and job.state is State.LEASED for job in self._memory.jobs.values()):
                effects = super().step(ev.TimePassed(), now)
                answer = messages.Cancelled(wanted, "cancelled")
                return [*effects, fx.Answer(event.connection, event.request, answer)]
        return super().step(event, now)


def main() -> None:
    """As `stoker`."""
    setattr(broker, Core.__name__, CarelessCore)
    stoker()
