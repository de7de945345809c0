"""`enqueue_many` of the blocking client: runs a `Pipeline` over one connection after the other."""

from collections.abc import Iterator
from functools import partial
from time import sleep
from typing import TYPE_CHECKING

from ..proto.errors import BrokerUnreachableError
from ..proto.messages import Enqueue
from .caller import Caller
from .handle import JobHandle
from .pipeline import Pipeline, handles_of
from .request import ConnectionLost
from .session import Answered, Refused
from .wire import Wire

if TYPE_CHECKING:
    from .sync import Client


def enqueue_all(client: "Client", caller: Caller, source: Iterator[Enqueue]) -> list[JobHandle]:
    """Handles in the order of the source. EnqueueManyError if one of them was not stored."""
    pipeline = Pipeline(source, path=caller.path, timeout_s=caller.timeout_s, retry_s=caller.retry_s)
    _run(pipeline, caller)
    return handles_of(pipeline, partial(JobHandle, client))


def _run(pipeline: Pipeline, caller: Caller) -> None:
    pause_s: float | None = 0.0
    while pause_s is not None:
        sleep(pause_s)
        try:
            wire = caller.take()
        except BrokerUnreachableError as error:
            pause_s = pipeline.after_absence(error, expected=caller.expects_broker())
            continue
        try:
            _over(wire, pipeline, caller.timeout_s)
        except ConnectionLost as lost:
            wire.close()
            caller.close()
            pause_s = pipeline.after_loss(lost)
        except BaseException:
            wire.close()
            raise
        else:
            if pipeline.is_complete:
                return caller.give(wire)
            wire.close()
            pause_s = pipeline.after_stop()


def _over(wire: Wire, pipeline: Pipeline, timeout_s: float) -> None:
    """As much as one connection carries: everything, or until its broker begins to stop."""
    pipeline.begin()
    while True:
        while frames := pipeline.fill(wire.request):
            wire.write(b"".join(frames), timeout_s)
        if not pipeline.is_flying:
            return
        answer: Answered | Refused | None = wire.receive(pipeline.answer_within())
        while answer is not None:
            pipeline.settle(answer)
            answer = wire.waiting()
