"""Brokers that push wrongly now and then, and of whom the journal has nothing but one attempt that did well.

`twice` pushes a job once more under its token, `anew` once more under another one that is on no record,
`never` takes a job for done that it has not pushed.
"""

from collections.abc import Callable
from typing import Any

from stoker.broker.core import effects as fx
from stoker.broker.core import leasing
from stoker.broker.core import step as core
from stoker.broker.core.job import Job
from stoker.broker.core.workers import Worker
from stoker.cli.main import main as stoker
from stoker.proto import limits
from stoker.proto.work import Job as Handed

EVERY = 50

Wrong = Callable[["WrongLeasing", fx.Push], None]


class WrongLeasing(leasing.Leasing):
    """Does something wrong with every so many pushes."""

    wrong: Wrong

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pushes = 0

    def _grant(self, job: Job, worker: Worker) -> None:
        super()._grant(job, worker)
        self.pushes += 1
        push = self._memory.effects[-1]
        if self.pushes % EVERY == 0 and isinstance(push, fx.Push):
            type(self).wrong(self, push)

    def push(self, push: fx.Push) -> None:
        """One more."""
        self._memory.effects.append(push)

    def unpush(self, push: fx.Push, token: tuple[int, int]) -> None:
        """None, and the job is done."""
        self._memory.effects.remove(push)
        self.succeed(self.leases[token], 0, None)


def _handed(push: fx.Push) -> Handed:
    assert isinstance(push.message, Handed)
    return push.message


def _twice(broker: WrongLeasing, push: fx.Push) -> None:
    broker.push(push)


def _anew(broker: WrongLeasing, push: fx.Push) -> None:
    epoch, counter = _handed(push).token
    # No counter comes so far, so it is nobody else's.
    token = [epoch, limits.INTEGER_MAX - counter]
    broker.push(fx.Push(push.connection, _handed(push)._replace(token=token)))


def _never(broker: WrongLeasing, push: fx.Push) -> None:
    epoch, counter = _handed(push).token
    broker.unpush(push, (epoch, counter))


def _run(wrong: Wrong) -> None:
    WrongLeasing.wrong = wrong
    setattr(core, leasing.Leasing.__name__, WrongLeasing)
    stoker()


def twice() -> None:
    """As `stoker`."""
    _run(_twice)


def anew() -> None:
    """As `stoker`."""
    _run(_anew)


def never() -> None:
    """As `stoker`."""
    _run(_never)
