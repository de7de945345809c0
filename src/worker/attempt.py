"""One attempt: call the handler, and turn whatever comes of it into an answer for the broker.

    returns                      ack, with its value if there is one
    Retry, any exception         nack `error`; SystemExit (also of 0), KeyboardInterrupt and
                                 GeneratorExit among them: leaving a handler by an exception is
                                 never success, and never the end of the worker
    Permanent                    nack `permanent`; so does what the kind's `retry_on` and
                                 `permanent_on` make permanent (see `faults.py`)
    MemoryError                  nack `memory`
    struck by the private signal nack `timeout` or `cancelled`, whatever the handler made of it: an
                                 attempt that was over its time can no longer succeed
    arguments that cannot be     nack `permanent`: the handler did not run, or has run and would do
    read or do not fit, result   it all again, and a retry changes neither
    that cannot be kept

The guard says when the private signal may raise: only between arming and disarming, which enclose
nothing but the handler. It disarms itself as it strikes, so it strikes an attempt at most once; and
everything that it may interrupt lies within one `try`, so its exception can reach no other code.
"""

import time
from collections.abc import Callable
from typing import Any, NoReturn

from ..client.values import encode_value
from ..proto import limits
from ..proto.work import Ack, Nack
from .errors import AFTER_S_MAX, JobCancelled, JobTimeout, Permanent, Retry
from .faults import LENIENT, Faults
from .payload import PayloadError, fitting_arguments
from .process import STRIKE_SIGNAL, Pidfd
from .report import cut, reason_of, report_of
from .signature import Fit
from .startpage import Token

_STRIKES: dict[str, tuple[type[BaseException], str, str]] = {
    "timeout": (JobTimeout, "timeout", "over its time limit"),
    "cancelled": (JobCancelled, "cancelled", "its handler was interrupted"),
    "lost": (JobCancelled, "cancelled", "its lease was lost while it was running"),
    "silent": (JobTimeout, "timeout", "it did not beat in the time it had named"),
}
"""Reason of a kill: what is raised in the handler, the outcome, and the reason on record."""


class Guard:
    """Whether the handler may be struck now, and whether it was."""

    __slots__ = ("armed", "deputy", "struck")

    def __init__(self) -> None:
        self.armed: Token | None = None
        self.deputy: Pidfd | None = None
        """The process in which the handler runs, if it is not this one (see `isolated`)."""
        self.struck: str | None = None

    def strike(self, reason: str) -> NoReturn:
        """Raise in the handler, from a signal handler that has seen `armed`."""
        self.armed = None
        self.struck = reason
        kind, _, text = _STRIKES[reason]
        raise kind(text)

    def pass_on(self, reason: str) -> None:
        """Have the handler struck where it runs."""
        self.struck = reason
        if self.deputy is not None:
            self.deputy.send(STRIKE_SIGNAL)


def run(
    function: Callable[..., Any],
    token: Token,
    payload: bytes,
    guard: Guard,
    *,
    fits: Fit,
    faults: Faults = LENIENT,
) -> Ack | Nack:
    """Call `function` with the arguments in `payload`. Raises nothing, whatever the function raises."""
    started = time.monotonic()
    guard.struck = None
    try:
        args, kwargs = fitting_arguments(payload, fits)
        try:
            guard.armed = token
            value = function(*args, **kwargs)
        finally:
            guard.armed = None
        if guard.struck is None:
            result = None if value is None else encode_result(value)
            return Ack(token, result, elapsed_ms(started))
        return struck_answer(token, guard.struck, "the handler went on all the same", started)
    except BaseException as error:  # noqa: BLE001 - what passed here would end the worker for one job's fault
        if guard.struck is not None:
            return struck_answer(token, guard.struck, report_of(error), started)
        return failed(token, error, started, faults)


def never_run(token: Token, reason: str) -> Nack:
    """The answer for an attempt that was to be ended before its handler began."""
    _, outcome, text = _STRIKES[reason]
    return Nack(token, outcome, f"{text.split(' while ')[0]} before it started")


def struck_and_gone(token: Token, reason: str) -> Nack:
    """The answer for a handler that was struck and ended its process."""
    _, outcome, text = _STRIKES[reason]
    return Nack(token, outcome, f"{text}, and its process ended")


def unknown_kind(token: Token, kind: str) -> Nack:
    """An error, so that it is tried again with backoff: the next deploy may know the kind."""
    return Nack(token, "error", f"no handler of kind {kind!r} in this app")


class _ResultError(Exception):
    """The handler has run, and what it returned cannot be kept."""


def encode_result(value: Any) -> bytes:
    try:
        return encode_value(value)
    except Exception as error:
        raise _ResultError(f"the handler finished, but its result cannot be kept: {error}") from error


def failed(token: Token, error: BaseException, started: float, faults: Faults) -> Nack:
    outcome, reason, after_ms = "error", reason_of(error), None
    if isinstance(error, Retry):
        reason, after_ms = _own_reason(error.reason) or reason, _after_ms(error)
    elif isinstance(error, Permanent):
        outcome, reason = "permanent", _own_reason(error.reason) or reason
    elif isinstance(error, PayloadError | _ResultError):
        outcome, reason = "permanent", cut(str(error), limits.REASON_BYTES_MAX)
    elif faults.is_permanent(error):
        outcome = "permanent"
    elif isinstance(error, MemoryError):
        outcome = "memory"
    return Nack(token, outcome, reason, report_of(error), after_ms, elapsed_ms(started))


def _own_reason(reason: object) -> str:
    """The text that the handler gave, if it is one."""
    return cut(reason, limits.REASON_BYTES_MAX) if type(reason) is str else ""


def _after_ms(error: Retry) -> int | None:
    # The attribute is the handler's to change, and a subclass may never have set it.
    after_s: object = error.after_s
    if isinstance(after_s, int | float) and 0 <= after_s <= AFTER_S_MAX:
        return round(after_s * limits.SECOND_MS)
    return None


def struck_answer(token: Token, reason: str, report: str, started: float) -> Nack:
    _, outcome, text = _STRIKES[reason]
    return Nack(token, outcome, text, report, None, elapsed_ms(started))


def elapsed_ms(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
