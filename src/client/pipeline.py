"""Many enqueues over one connection, a window of them on their way at any time; without I/O.

Answers are matched by number. When the connection is lost, what was sent and not answered is sent
again with the same ids, first, on the next one. The first refusal ends the sending: answers that are
still on their way are collected, so that the caller knows of each job whether it was stored.

`bulk` and `aio_bulk` run it, for the blocking and the asynchronous client.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from ..proto.errors import BrokerUnreachableError, StokerError
from ..proto.messages import Enqueue, Enqueued
from .request import ConnectionLost, answer_within, unknown
from .retry import Patience
from .session import Answered, Refused

if TYPE_CHECKING:
    from .handle import AsyncJobHandle, JobHandle

H = TypeVar("H", "JobHandle", "AsyncJobHandle")

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
        self,
        message: str,
        *,
        index: int,
        handles: "Sequence[JobHandle | AsyncJobHandle | None]",
        unsettled: list[str],
    ) -> None:
        super().__init__(message)
        self.index = index
        self.handles = handles
        self.unsettled = unsettled


class Pipeline:
    """One run over an iterable, without I/O. `stored` maps the position of each job to its answer.

    Whoever runs it sends what `fill` gives, brings every answer to `settle`, and says what else
    happened by `after_...`: these give the seconds to sleep before going on over a new connection, or
    None when it is over, and `failure` then says why.
    """

    def __init__(self, source: Iterator[Enqueue], *, path: str, timeout_s: float, retry_s: float) -> None:
        self.stored: dict[int, Enqueued] = {}
        self.taken_count = 0
        self.failure: tuple[int, Exception] | None = None
        """The first that went wrong: its position, and how."""
        self.unsettled: list[str] = []
        self._path = path
        self._timeout_s = timeout_s
        self._source = source
        self._again: list[tuple[int, Enqueue]] = []
        """To be sent before anything new is taken; the next one is last."""
        self._flying: dict[int, tuple[int, Enqueue]] = {}
        """Request number to what was sent and not answered."""
        self._flying_bytes = 0
        self._is_stopping = False
        self._patience = Patience(retry_s)

    @property
    def is_flying(self) -> bool:
        """Is an answer outstanding?"""
        return bool(self._flying)

    @property
    def is_complete(self) -> bool:
        """With nothing outstanding: or is there something for the successor of a broker that stops?"""
        return not self._again

    def begin(self) -> None:
        """On a new connection."""
        self._is_stopping = False

    def fill(self, request: Callable[[Enqueue], tuple[int, bytes]]) -> list[bytes]:
        """The frames of one write, as far as the window allows; `request` numbers and encodes."""
        frames: list[bytes] = []
        size = 0
        while len(frames) < WRITE_COUNT and size < WRITE_BYTES and self._has_room():
            job = self._next()
            if job is None:
                break
            number, frame = request(job[1])
            self._flying[number] = job
            self._flying_bytes += len(job[1].payload)
            frames.append(frame)
            size += len(frame)
        return frames

    def answer_within(self) -> float:
        """How long the next answer may take."""
        waits = (answer_within(message, self._timeout_s) for _, message in self._flying.values())
        return max(wait for wait in waits if wait is not None)

    def settle(self, answer: Answered | Refused) -> None:
        """Take one answer."""
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

    def after_absence(self, error: BrokerUnreachableError, *, expected: bool) -> float | None:
        """No connection was to be had. `expected`: the broker was there before."""
        pause_s = self._patience.next_pause() if expected else None
        if pause_s is None:
            self._give_up(str(error), error)
        return pause_s

    def after_loss(self, lost: ConnectionLost) -> float | None:
        """What was on its way may be stored already, so it is no longer fresh when it is sent again."""
        flown = [(position, message._replace(fresh=False)) for position, message in self._flying.values()]
        self._again = sorted([*self._again, *flown], reverse=True, key=_position)
        self._flying.clear()
        self._flying_bytes = 0
        pause_s = None if lost.overdue or lost.error else self._patience.next_pause()
        if pause_s is None:
            self._give_up(str(lost), lost.error)
        return pause_s

    def after_stop(self) -> float | None:
        """The broker that stops has answered everything, and refused what is for its successor."""
        pause_s = self._patience.next_pause()
        if pause_s is None:
            self._give_up("the broker is stopping", None)
        return pause_s

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

    def _give_up(self, why: str, error: Exception | None) -> None:
        left = [message for _, message in self._again if not message.fresh]
        self.unsettled = [message.id for message in reversed(left)]
        if self.failure is None and self._again:
            position, message = self._again[-1]
            self.failure = (position, error or unknown(message, self._path, why))
        elif self.failure is None:
            self.failure = (self.taken_count, error or BrokerUnreachableError(why))


def _position(job: tuple[int, Enqueue]) -> int:
    return job[0]


def handles_of(pipeline: Pipeline, handle: Callable[[str, int], H]) -> list[H]:
    """What a run that is over has stored; EnqueueManyError if that is not everything."""
    stored = [pipeline.stored.get(position) for position in range(pipeline.taken_count)]
    handles = [None if answer is None else handle(answer.id, answer.number) for answer in stored]
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
