"""Calls of the blocking client: which connection carries one, and what is done when it fails.

Connections. A call takes an idle connection or opens one, and has it for itself until its answer is
there. So a thread in a long `wait` holds up nobody, no two threads can read each other's answers,
and a program that calls from one thread has one connection. A forked child starts with none: it
closes its copies of the parent's descriptors, which does not end the parent's connections.

Lost connections. What had not left whole did not happen, and is sent again. What had left may have
happened: questions, and enqueues (which are known by their id), are repeated within `retry_s`, so
that a restart of the broker goes unnoticed; anything else raises OutcomeUnknown. A caller that has
been connected takes an absent broker for one that restarts; one that never was says so at once.

Time. `timeout_s` bounds the wait for each answer. Then a question raises ClientTimeoutError and
anything else OutcomeUnknown, and the connection is dropped: its late answer reaches nobody.
"""

import os
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
from .wire import ConnectionLost, Wire

IDLE_MAX = 8
"""Idle connections kept; what a burst of threads opened beyond them is closed again."""

_QUESTIONS = frozenset(
    {messages.Show, messages.Jobs, messages.Status, messages.Why, messages.Wait, messages.Help}
)
"""They change nothing, so asking twice is asking once."""

_ANSWERED_LATE: dict[type[Any], str] = {
    messages.Enqueue: "wait_ms",
    messages.Wait: "timeout_ms",
    messages.Drain: "timeout_ms",
}
"""Requests whose answer the caller asked to have later, and the field that says how much."""

_UNSEEN = frozenset({"shutting_down", "too_many_connections", "storage_full"})
"""Refusals given without looking whether the same request was executed before."""

_UNBOUNDED = frozenset({messages.Wait, messages.Drain})
"""Without that field, these are answered when it is time, however long that is."""

_SNAPSHOT_S = 600.0
"""A copy of a large journal takes as long as the disk needs."""


class Caller:
    """See the module. May be used by any number of threads."""

    def __init__(self, path: str, *, timeout_s: float, retry_s: float) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self.retry_s = retry_s
        self._was_connected = False
        # No lock: append and pop of a list are atomic, and nothing else is shared.
        self._idle: list[Wire] = []
        self._pid = os.getpid()

    def close(self) -> None:
        """Close the idle connections. The next call opens a new one."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def take(self) -> Wire:
        """A connection for the caller alone; to be given back, or closed. BrokerUnreachableError."""
        if os.getpid() != self._pid:
            self.close()
            self._pid = os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            wire = Wire(self.path, self.timeout_s)
        self._was_connected = True
        return wire

    def give(self, wire: Wire) -> None:
        """Return a connection on which nothing is outstanding."""
        if len(self._idle) < IDLE_MAX:
            self._idle.append(wire)
        else:
            wire.close()

    def expects_broker(self) -> bool:
        """Has it been connected before? Then an absent broker is one that restarts."""
        return self._was_connected

    def ask(self, message: Message) -> Any:
        """The answer to one request. RefusedError and the errors of the module."""
        attempt = _Attempt(self, message)
        while True:
            try:
                return self._exchange(attempt.message)
            except ConnectionLost as lost:
                self.close()
                attempt.after_loss(lost)
            except BrokerUnreachableError as error:
                attempt.after_absence(error)
            except RefusedError as error:
                attempt.after_refusal(error)

    def _exchange(self, message: Message) -> Any:
        wire = self.take()
        try:
            answer = wire.exchange(message, answer_within(message, self.timeout_s))
        except RefusedError:
            self.give(wire)
            raise
        except BaseException:
            # Also Ctrl-C, or an exception a signal handler raised: an answer may still be on its way.
            wire.close()
            raise
        self.give(wire)
        return answer


class _Attempt:
    """One request on its way through losses: decides after each whether to go on, or raises."""

    __slots__ = ("_caller", "_has_left", "_has_reconnected", "_patience", "_started", "message")

    def __init__(self, caller: Caller, message: Message) -> None:
        self.message = message
        self._caller = caller
        self._patience = Patience(caller.retry_s)
        self._started = monotonic()
        self._has_left = False
        self._has_reconnected = False

    def after_loss(self, lost: ConnectionLost) -> None:
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
            return None
        if not self._patience.pause():
            raise self._given_up(str(lost)) from lost
        return None

    def after_absence(self, error: BrokerUnreachableError) -> None:
        if not self._caller.expects_broker() or not self._patience.pause():
            raise self._given_up(str(error)) if self._has_left else error

    def after_refusal(self, error: RefusedError) -> None:
        # A broker that stops refuses what waits. It did nothing of it, and its successor will.
        if error.code == "shutting_down" and self._patience.pause():
            self._caller.close()
        elif error.code in _UNSEEN and self._has_left and type(self.message) not in _QUESTIONS:
            raise unknown(self.message, self._caller.path, str(error)) from error
        else:
            raise error

    def _repeat(self, lost: ConnectionLost) -> None:
        message = self.message
        if isinstance(message, messages.Enqueue):
            self.message = message._replace(fresh=False)
        elif isinstance(message, messages.Wait) and message.timeout_ms is not None:
            waited_ms = round((monotonic() - self._started) * 1000)
            self.message = message._replace(timeout_ms=max(0, message.timeout_ms - waited_ms))
        elif type(message) not in _QUESTIONS:
            raise unknown(message, self._caller.path, str(lost)) from lost

    def _overdue(self, lost: ConnectionLost) -> StokerError:
        if self._has_left or (lost.sent and type(self.message) not in _QUESTIONS):
            return unknown(self.message, self._caller.path, str(lost))
        if not lost.sent:
            return BrokerUnreachableError(
                f"the broker at {self._caller.path} does not read; nothing was sent. Is it stopped?"
            )
        return ClientTimeoutError(
            f"the broker at {self._caller.path} gave no answer within {self._caller.timeout_s:g} s"
        )

    def _given_up(self, why: str) -> StokerError:
        if self._has_left and type(self.message) not in _QUESTIONS:
            return unknown(self.message, self._caller.path, why)
        return BrokerUnreachableError(
            f"lost the broker at {self._caller.path} ({why}); start one with `stoker up`"
        )


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
