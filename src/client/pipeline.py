"""Many enqueues over one connection, a window of them on their way at any time.

Answers are matched by number. When the connection is lost, what was sent and not answered is sent
again with the same ids, first, on the next one. The first refusal ends the sending: answers that are
still on their way are collected, so that the caller knows of each job whether it was stored.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from ..proto.errors import BrokerUnreachableError, StokerError
from ..proto.messages import Enqueue, Enqueued
from .caller import Caller, answer_within, unknown
from .handle import JobHandle
from .retry import Patience
from .session import Answered, Refused
from .wire import ConnectionLost, Wire

if TYPE_CHECKING:
    from .sync import Client

WINDOW_COUNT = 512
"""Their answers fit a socket buffer many times over, so neither side ever waits for the other to read."""

WINDOW_BYTES = 4 * 1024 * 1024
"""So that large payloads are not all held here while the broker writes."""

WRITE_BYTES = 64 * 1024
WRITE_COUNT = 64
"""Frames gathered for one system call; small, so that a slow iterable does not hold back what it gave."""


class EnqueueManyError(StokerError):
    """Not every job of `enqueue_many` was stored; the cause is what happened to number `index`.

    `handles` has one entry for each job that was taken from the iterable: its handle, or None if it
    was not stored. `unsettled` are the ids of those that may have been: enqueue them again with
    these ids to be sure.
    """

    def __init__(
        self, message: str, *, index: int, handles: list[JobHandle | None], unsettled: list[str]
    ) -> None:
        super().__init__(message)
        self.index = index
        self.handles = handles
        self.unsettled = unsettled


class Pipeline:
    """One run over an iterable. `stored` maps the position of each job to its answer."""

    def __init__(self, caller: Caller, source: Iterator[Enqueue]) -> None:
        self.stored: dict[int, Enqueued] = {}
        self.taken_count = 0
        self.failure: tuple[int, Exception] | None = None
        """The first that went wrong: its position, and how."""
        self.unsettled: list[str] = []
        self._caller = caller
        self._source = source
        self._again: list[tuple[int, Enqueue]] = []
        """To be sent before anything new is taken; the next one is last."""
        self._flying: dict[int, tuple[int, Enqueue]] = {}
        """Request number to what was sent and not answered."""
        self._flying_bytes = 0
        self._is_stopping = False
        self._patience = Patience(caller.retry_s)

    def run(self) -> None:
        """Send everything and collect every answer; `failure` says if that did not work out."""
        while True:
            try:
                wire = self._caller.take()
            except BrokerUnreachableError as error:
                if self._caller.expects_broker() and self._patience.pause():
                    continue
                return self._give_up(str(error), error)
            try:
                self._over(wire)
            except ConnectionLost as lost:
                wire.close()
                self._caller.close()
                self._recall()
                if lost.overdue or lost.error or not self._patience.pause():
                    return self._give_up(str(lost), lost.error)
                continue
            except BaseException:
                wire.close()
                raise
            if not self._again:
                return self._caller.give(wire)
            # Refused by a broker that is stopping: for its successor.
            wire.close()
            if not self._patience.pause():
                return self._give_up("the broker is stopping", None)

    def _over(self, wire: Wire) -> None:
        """As much as one connection carries: everything, or until its broker begins to stop."""
        self._is_stopping = False
        while True:
            while self._send_some(wire):
                pass
            if not self._flying:
                return
            answer: Answered | Refused | None = wire.receive(self._answer_within())
            while answer is not None:
                self._settle(answer)
                answer = wire.waiting()

    def _send_some(self, wire: Wire) -> bool:
        """One write of what the window allows; False if that is nothing."""
        data: list[bytes] = []
        size = 0
        while len(data) < WRITE_COUNT and size < WRITE_BYTES and self._has_room():
            job = self._next()
            if job is None:
                break
            number, frame = wire.request(job[1])
            self._flying[number] = job
            self._flying_bytes += len(job[1].payload)
            data.append(frame)
            size += len(frame)
        if data:
            wire.write(b"".join(data), self._caller.timeout_s)
        return bool(data)

    def _has_room(self) -> bool:
        return (
            not self._is_stopping
            and len(self._flying) < WINDOW_COUNT
            and (self._flying_bytes < WINDOW_BYTES or not self._flying)
        )

    def _next(self) -> tuple[int, Enqueue] | None:
        if self._again:
            return self._again.pop()
        if self.failure is not None:
            return None
        position = self.taken_count
        try:
            message = next(self._source)
        except StopIteration:
            return None
        except Exception as error:  # noqa: BLE001 - the caller's iterable may raise anything
            # What is on its way is still to be accounted for.
            self.failure = (position, error)
            return None
        self.taken_count += 1
        return position, message

    def _answer_within(self) -> float | None:
        waits = (answer_within(message, self._caller.timeout_s) for _, message in self._flying.values())
        return max(wait for wait in waits if wait is not None)

    def _settle(self, answer: Answered | Refused) -> None:
        position, message = self._flying.pop(answer.request)
        self._flying_bytes -= len(message.payload)
        if type(answer) is Answered:
            self.stored[position] = cast(Enqueued, answer.message)
        elif type(answer) is Refused and answer.error.code == "shutting_down":
            self._is_stopping = True
            self._again.append((position, message))
            self._again.sort(reverse=True, key=_position)
        elif type(answer) is Refused and self.failure is None:
            self.failure = (position, answer.error)

    def _recall(self) -> None:
        """After a loss: what was on its way may be stored already, so it is no longer fresh."""
        flown = [(position, message._replace(fresh=False)) for position, message in self._flying.values()]
        self._again = sorted([*self._again, *flown], reverse=True, key=_position)
        self._flying.clear()
        self._flying_bytes = 0

    def _give_up(self, why: str, error: Exception | None) -> None:
        left = [message for _, message in self._again if not message.fresh]
        self.unsettled = [message.id for message in reversed(left)]
        if self.failure is None and self._again:
            position, message = self._again[-1]
            self.failure = (position, error or unknown(message, self._caller.path, why))
        elif self.failure is None:
            self.failure = (self.taken_count, error or BrokerUnreachableError(why))


def _position(job: tuple[int, Enqueue]) -> int:
    return job[0]


def enqueue_all(client: "Client", caller: Caller, source: Iterator[Enqueue]) -> list[JobHandle]:
    """Handles in the order of the source. EnqueueManyError if one of them was not stored."""
    pipeline = Pipeline(caller, source)
    pipeline.run()
    stored = [pipeline.stored.get(position) for position in range(pipeline.taken_count)]
    handles = [None if answer is None else JobHandle(client, answer.id, answer.number) for answer in stored]
    whole = [handle for handle in handles if handle is not None]
    if pipeline.failure is None:
        return whole
    index, error = pipeline.failure
    raise EnqueueManyError(
        f"job {index} of enqueue_many: {error} ({len(whole)} were stored)",
        index=index,
        handles=handles,
        unsettled=pipeline.unsettled,
    ) from error
