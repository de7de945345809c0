"""`enqueue_many` of the asynchronous client: runs a `Pipeline` over the line that its loop shares."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ..proto.errors import BrokerUnreachableError
from ..proto.messages import Enqueue
from .aio_caller import AsyncCaller
from .aio_line import Inbox, Line
from .handle import AsyncJobHandle
from .pipeline import Pipeline, handles_of
from .request import ConnectionLost

if TYPE_CHECKING:
    from .aio import AsyncClient


async def enqueue_all(
    client: "AsyncClient", caller: AsyncCaller, source: Iterator[Enqueue]
) -> list[AsyncJobHandle]:
    """Handles in the order of the source. EnqueueManyError if one of them was not stored."""
    pipeline = Pipeline(source, path=caller.path, timeout_s=caller.timeout_s, retry_s=caller.retry_s)
    await _run(pipeline, caller)
    return handles_of(pipeline, partial(AsyncJobHandle, client))


async def _run(pipeline: Pipeline, caller: AsyncCaller) -> None:
    pause_s: float | None = 0.0
    while pause_s is not None:
        await anyio.sleep(pause_s)
        try:
            line = await caller.take()
        except BrokerUnreachableError as error:
            pause_s = pipeline.after_absence(error, expected=caller.expects_broker())
            continue
        inbox = line.join()
        try:
            await _over(line, inbox, pipeline)
        except ConnectionLost as lost:
            line.retire()
            pause_s = pipeline.after_loss(lost)
        else:
            if pipeline.is_complete:
                return
            line.retire()
            pause_s = pipeline.after_stop()
        finally:
            line.leave(inbox)


async def _over(line: Line, inbox: Inbox, pipeline: Pipeline) -> None:
    """As much as one line carries: everything, or until its broker begins to stop."""
    pipeline.begin()
    while True:
        while pipeline.fill(partial(line.request, inbox)):
            line.flush()
        if not pipeline.is_flying:
            return
        with anyio.move_on_after(pipeline.answer_within()):
            await line.wait_answer(inbox)
        if not inbox.answers:
            raise ConnectionLost("no answer in time", sent=True, overdue=True)
        while inbox.answers:
            pipeline.settle(inbox.answers.popleft())
