"""One attempt of a coroutine function: `attempt.run` for a loop, where it is struck by cancelling it.

What becomes of what is the same, and so are the words. A cancellation that nobody asked for, which in
asyncio any task may raise, is a failed attempt like any other exception.
"""

import time
from collections.abc import Callable
from typing import Any

import anyio

from ..proto.work import Ack, Nack
from .attempt import elapsed_ms, encode_result, failed, struck_answer
from .faults import LENIENT, Faults
from .payload import fitting_arguments
from .report import report_of
from .signature import Fit
from .startpage import Token


class Strike:
    """The end of an attempt, should one come before its own."""

    __slots__ = ("reason", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.reason: str | None = None

    def fall(self, reason: str) -> None:
        """Cancel it, for the first reason that there is."""
        self.reason = self.reason or reason
        self.scope.cancel()


async def run(
    function: Callable[..., Any],
    token: Token,
    payload: bytes,
    strike: Strike,
    *,
    fits: Fit,
    faults: Faults = LENIENT,
) -> Ack | Nack:
    """Await `function` with the arguments in `payload`. Raises nothing, whatever the function raises."""
    started = time.monotonic()
    report = "the handler went on all the same"
    try:
        args, kwargs = fitting_arguments(payload, fits)
        with strike.scope:
            value = await function(*args, **kwargs)
            if strike.reason is None:
                return Ack(token, None if value is None else encode_result(value), elapsed_ms(started))
        if strike.scope.cancelled_caught:
            report = ""
    except BaseException as error:  # noqa: BLE001 - what passed here would end the worker for one job's fault
        if strike.reason is None:
            return failed(token, error, started, faults)
        report = report_of(error)
    assert strike.reason is not None, "only a strike leads here"
    return struck_answer(token, strike.reason, report, started)
