"""One request on its way through losses: what is done after each, decided without I/O.

Both clients put every request through this. They send it and wait; what went wrong they bring here,
and either sleep as long as they are told and send `message` again, or the error for the caller is
raised.

What had not left whole did not happen, and is sent again. What had left may have happened:
questions, and enqueues (which are known by their id), are repeated within `retry_s`, so that a restart
of the broker goes unnoticed; anything else raises OutcomeUnknown. A client that has been connected
takes an absent broker for one that restarts; one that never was says so at once.

`timeout_s` bounds the wait for each answer. Then a question raises ClientTimeoutError and anything
else OutcomeUnknown.
"""

from time import monotonic
from typing import Any

from ..proto import messages
from ..proto.errors import (
    BrokerUnreachableError,
    ClientTimeoutError,
    OutcomeUnknown,
    RefusedError,
    StokerError,
)
from ..proto.messages import Message
from .retry import Patience

_QUESTIONS = frozenset(
    {
        messages.Show,
        messages.Jobs,
        messages.Status,
        messages.Why,
        messages.Wait,
        messages.Follow,
        messages.Help,
    }
)
"""They change nothing, so asking twice is asking once."""

_ANSWERED_LATE: dict[type[Any], str] = {
    messages.Enqueue: "wait_ms",
    messages.Wait: "timeout_ms",
    messages.Follow: "timeout_ms",
    messages.Drain: "timeout_ms",
}
"""Requests whose answer the caller asked to have later, and the field that says how much."""

_UNSEEN = frozenset({"shutting_down", "too_many_connections", "storage_full"})
"""Refusals given without looking whether the same request was executed before."""

_UNBOUNDED = frozenset({messages.Wait, messages.Follow, messages.Drain})
"""Without that field, these are answered when it is time, however long that is."""

_SNAPSHOT_S = 600.0
"""A copy of a large journal takes as long as the disk needs."""


class ConnectionLost(Exception):
    """The connection has failed. `sent`: the request had left whole, so it may have been executed.

    `overdue`: it did not end, the answer just did not come. `error` is what the broker said before
    it closed, if it said why.
    """

    def __init__(
        self, why: str, *, sent: bool, overdue: bool = False, error: StokerError | None = None
    ) -> None:
        super().__init__(why)
        self.sent = sent
        self.overdue = overdue
        self.error = error


class Request:
    """See the module. Each `after_...` gives the seconds to sleep before `message` is sent again, or raises."""

    __slots__ = (
        "_has_left",
        "_has_reconnected",
        "_path",
        "_patience",
        "_started",
        "_timeout_s",
        "message",
    )

    def __init__(self, message: Message, *, path: str, timeout_s: float, retry_s: float) -> None:
        self.message = message
        self._path = path
        self._timeout_s = timeout_s
        self._patience = Patience(retry_s)
        self._started = monotonic()
        self._has_left = False
        self._has_reconnected = False

    def after_loss(self, lost: ConnectionLost) -> float:
        """After a connection that failed with this request on it."""
        if isinstance(lost.error, RefusedError):
            # Said of the connection, not of the request: too many, say. Nothing was executed.
            return self.after_refusal(lost.error)
        if lost.overdue:
            raise self._overdue(lost) from None
        if lost.sent:
            self._has_left = True
            self._repeat(lost)
        elif not self._has_reconnected:
            # An idle connection that a restarted broker left behind: no reason to wait.
            self._has_reconnected = True
            return 0
        pause_s = self._patience.next_pause()
        if pause_s is None:
            raise self._given_up(str(lost)) from lost
        return pause_s

    def after_absence(self, error: BrokerUnreachableError, *, expected: bool) -> float:
        """No connection was to be had. `expected`: the broker was there before."""
        pause_s = self._patience.next_pause() if expected else None
        if pause_s is None:
            raise self._given_up(str(error)) if self._has_left else error
        return pause_s

    def after_refusal(self, error: RefusedError) -> float:
        """Only the refusal of a broker that stops is no reason to give up; it closes its connections."""
        # It did nothing of what waits, and its successor will.
        pause_s = self._patience.next_pause() if error.code == "shutting_down" else None
        if pause_s is not None:
            return pause_s
        if error.code in _UNSEEN and self._has_left and type(self.message) not in _QUESTIONS:
            raise unknown(self.message, self._path, str(error)) from error
        raise error

    def _repeat(self, lost: ConnectionLost) -> None:
        message = self.message
        if isinstance(message, messages.Enqueue):
            self.message = message._replace(fresh=False)
        elif isinstance(message, messages.Wait) and message.timeout_ms is not None:
            waited_ms = round((monotonic() - self._started) * 1000)
            self.message = message._replace(timeout_ms=max(0, message.timeout_ms - waited_ms))
        elif type(message) not in _QUESTIONS:
            raise unknown(message, self._path, str(lost)) from lost

    def _overdue(self, lost: ConnectionLost) -> StokerError:
        if (self._has_left or lost.sent) and type(self.message) not in _QUESTIONS:
            return unknown(self.message, self._path, str(lost))
        if not lost.sent:
            return BrokerUnreachableError(
                f"the broker at {self._path} does not read; nothing was sent. Is it stopped?"
            )
        return ClientTimeoutError(f"the broker at {self._path} gave no answer within {self._timeout_s:g} s")

    def _given_up(self, why: str) -> StokerError:
        if self._has_left and type(self.message) not in _QUESTIONS:
            return unknown(self.message, self._path, why)
        return BrokerUnreachableError(f"lost the broker at {self._path} ({why}); start one with `stoker up`")


def answer_within(message: Message, timeout_s: float) -> float | None:
    """How long the answer to this message may take; None for a request that waits for ever."""
    kind: type[Any] = type(message)
    if kind is messages.Snapshot:
        return max(timeout_s, _SNAPSHOT_S)
    field = _ANSWERED_LATE.get(kind)
    if field is None:
        return timeout_s
    later_ms = getattr(message, field)
    if later_ms is None:
        return None if kind in _UNBOUNDED else timeout_s
    return timeout_s + float(later_ms) / 1000


def unknown(message: Message, path: str, why: str) -> OutcomeUnknown:
    """The error for a request that left and was not answered."""
    name = type(message).__name__.lower()
    if isinstance(message, messages.Enqueue):
        return OutcomeUnknown(
            f"no answer from {path} ({why}): job {message.id} may or may not be stored; "
            f"enqueue it again with id={message.id!r} to be sure",
            job_id=message.id,
        )
    return OutcomeUnknown(
        f"no answer from {path} ({why}): the {name} may or may not have been done; look, or repeat it",
        job_id=getattr(message, "id", None),
    )
