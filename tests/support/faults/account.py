"""The account of a conversation: what peers asked of a broker and what it told them, as history and as promises.

Fed with requests before they are sent and with frames as they come, or as they were seen to leave the
broker. The oracle judges the history of a whole run; `broken_by` judges a file, at any moment, by what had
been told until then. What was only asked may have happened or not.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from stoker.broker.core.job import COLUMNS
from stoker.proto import messages as m
from stoker.proto import work as w
from stoker.proto.messages import ANSWER, Message
from stoker.proto.model import State

from .. import history as h
from .promises import Promises
from .witness import Content

WORKER = "worker"
"""The one worker there is."""

_ENDS = (w.Ack, w.Nack, w.Release)
_PUSHED_JOB = w.OPS[w.Job][0]
_ID, _STATE = COLUMNS.index("id"), COLUMNS.index("state")


class Account:
    """See the module."""

    def __init__(self) -> None:
        self.history = h.History()
        self.unanswered: dict[int, Message] = {}
        """By request number, in the order of asking."""
        self.answers: dict[int, list[Any]] = {}
        self.is_over = False
        """Nobody is left to hear anything: the host has no power."""
        self.epoch = 0
        """Of the last token that was handed out."""
        self._promises = Promises()
        self._job_of: dict[tuple[int, int], str] = {}
        self._states: dict[str, str] = {}
        self._payloads: dict[int, bytes] = {}
        self._paused: dict[str, bool] = {}

    def note(self, record: h.Record) -> None:
        """Something that happened."""
        self.history.add(record)
        self._promises.take(record)

    # --- what is asked ---------------------------------------------------------------------------------

    def ask(self, number: int, message: Message) -> None:
        """A request is about to be sent. From now on it may happen."""
        self.unanswered[number] = message
        if isinstance(message, _ENDS):
            self.note(h.Reached(now_ms(), WORKER, _token(message.token), _op(message)))
        elif isinstance(message, m.Kick) and message.id is not None:
            self._states.pop(message.id, None)
        elif isinstance(message, m.Drop) and message.id is not None:
            self._states.pop(message.id, None)
            self.note(h.Dropped(now_ms(), message.id))
        elif isinstance(message, m.Pause | m.Resume):
            self._paused.pop(message.queue or "", None)

    # --- what is told ----------------------------------------------------------------------------------

    def counts_delivery(self, token: Sequence[int]) -> bool:
        """Whether that job was heard of while there was power."""
        return (token[0], token[1]) in self._job_of

    def hear(self, array: list[Any]) -> None:
        """A frame of the broker."""
        if self.is_over:
            return
        if array[0] == _PUSHED_JOB:
            self._pushed(w.Job(*array[2:]))
        elif array[1] in self.unanswered:
            self.answers[array[1]] = array
            self._answered(self.unanswered.pop(array[1]), array[0] == ANSWER, array[2:])

    def _pushed(self, job: w.Job) -> None:
        token = _token(job.token)
        self._job_of[token], self.epoch = job.id, token[0]
        self.note(h.Pushed(now_ms(), job.id, token, WORKER, job.attempt, job.time_limit_ms))
        self.note(h.Started(now_ms(), job.id, token, WORKER, supervised=False))

    def _answered(self, message: Message, accepted: bool, fields: list[Any]) -> None:
        if isinstance(message, m.Enqueue):
            self._enqueued(message, accepted, fields)
        elif not accepted:
            return
        elif isinstance(message, _ENDS):
            token = _token(message.token)
            self.note(h.Confirmed(now_ms(), WORKER, token, _op(message)))
            if isinstance(message, w.Nack) and message.outcome == "permanent":
                self._states[self._job_of[token]] = State.DEAD
        elif isinstance(message, m.Cancel) and fields[1] == "cancelled":
            self._states[message.id] = State.CANCELLED
        elif isinstance(message, m.Pause | m.Resume):
            self._paused[message.queue or ""] = isinstance(message, m.Pause)

    def _enqueued(self, message: m.Enqueue, accepted: bool, fields: list[Any]) -> None:
        body = (*message[1:3], *message[4:])
        number, code = (fields[1], "") if accepted else (None, fields[0])
        self.note(h.Enqueued(now_ms(), message.id, body, message.fresh, number, code))
        if number is not None:
            self._payloads[number] = message.payload

    # --- what a file must hold -------------------------------------------------------------------------

    def broken_by(self, content: Content) -> Iterator[str]:
        """Everything that was told and that a journal with this content does not bear out, in words."""
        yield from self._promises.broken_by(content)
        states = {job[_ID]: job[_STATE] for job in content["jobs"].values()}
        for id, state in self._states.items():
            if states.get(id) != state:
                yield f"job {id} was said to be {state} and is {states.get(id)}"
        for number in self._payloads.keys() & content["jobs"].keys():
            if content["payloads"].get(number) != self._payloads[number]:
                yield f"job number {number} has not the payload that it was given"
        for queue, paused in self._paused.items():
            if (queue in content["paused"]) is not paused:
                yield f"queue {queue!r} was {'paused' if paused else 'resumed'} and is not"


def now_ms() -> int:
    """The instant of a record."""
    return time.monotonic_ns() // 1_000_000


def _token(token: Any) -> tuple[int, int]:
    epoch, counter = token
    return epoch, counter


def _op(message: Message) -> str:
    return type(message).__name__.lower()
