"""A broker without fencing: it takes an ack of any token that a job ever had for one of its present token."""

from typing import Any

from stoker.broker import main as broker
from stoker.broker.core import effects as fx
from stoker.broker.core import events as ev
from stoker.broker.core.step import Core
from stoker.cli.main import main as stoker
from stoker.proto import messages, work


class UnfencedCore(Core):
    """Remembers every token, and lets each count."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._numbers: dict[tuple[int, int], int] = {}

    def step(self, event: ev.Event, now: ev.Now) -> list[fx.Effect]:
        if isinstance(event, ev.Received) and isinstance(event.message, work.Ack):
            token = (event.message.token[0], event.message.token[1])
            if token in self._numbers and token not in self._leasing.leases:
                return self._accept(event, self._numbers[token], now)
        effects = super().step(event, now)
        self._numbers |= {lease.token: lease.number for lease in self._leasing.leases.values()}
        return effects

    def _accept(self, event: ev.Received, number: int, now: ev.Now) -> list[fx.Effect]:
        job = self._memory.jobs.get(number)
        if job is not None and job.token in self._leasing.leases:
            self._leasing.succeed(self._leasing.leases[job.token], 0, None)
        effects = super().step(ev.TimePassed(), now)
        return [*effects, fx.Answer(event.connection, event.request, messages.Done())]


def main() -> None:
    """As `stoker`."""
    setattr(broker, Core.__name__, UnfencedCore)
    stoker()
