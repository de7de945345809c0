"""One attempt of a coroutine function: `attempt.run` for a loop, where it is struck by cancelling it.

What becomes of what is the same, and so are the words. A cancellation that nobody asked for, which in
asyncio any task may raise, is a failed attempt like any other exception.

Each loop cancels in its own way. In Trio a scope is cancelled, and whoever cleans up with an await shields
it. In asyncio a task gets one CancelledError, and what it awaits after that is its own affair; so the
handler runs in a task of its own there, and is not cancelled again and again as a scope would do it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ..proto.work import Ack, Nack
from .attempt import elapsed_ms, encode_result, failed, struck_answer
from .faults import LENIENT, Faults
from .flavour import Flavour
from .payload import fitting_arguments
from .report import report_of
from .signature import Fit
from .startpage import Token


class Strike:
    """The end of an attempt, should one come before its own."""

    __slots__ = ("cancel", "reason", "within_ms")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.within_ms: int | None = None
        """So long it may take; then the worker is killed, and with it all that runs there."""
        self.cancel: Callable[[], object] = lambda: None
        """How to cancel what runs."""

    def fall(self, reason: str, within_ms: int | None = None) -> None:
        """Cancel it, once and for the first reason that there is."""
        if self.reason is None:
            self.reason, self.within_ms = reason, within_ms
            self.cancel()


class _Ended(Exception):
    """The handler let a strike end it."""


async def run(
    function: Callable[..., Awaitable[Any]],
    token: Token,
    payload: bytes,
    strike: Strike,
    *,
    flavour: Flavour,
    fits: Fit,
    faults: Faults = LENIENT,
) -> Ack | Nack:
    """Await `function` with the arguments in `payload`. Raises nothing, whatever the function raises."""
    started = time.monotonic()
    awaited = _in_asyncio if flavour is Flavour.ASYNCIO else _in_trio
    try:
        args, kwargs = fitting_arguments(payload, fits)
        value = await awaited(lambda: function(*args, **kwargs), strike)
        if strike.reason is None:
            return Ack(token, None if value is None else encode_result(value), elapsed_ms(started))
        report = "the handler went on all the same"
    except _Ended:
        report = ""
    except BaseException as error:  # noqa: BLE001 - what passed here would end the worker for one job's fault
        if strike.reason is None:
            return failed(token, error, started, faults)
        report = report_of(error)
    return struck_answer(token, strike.reason or "cancelled", report, started)


async def _in_trio(call: Callable[[], Awaitable[Any]], strike: Strike) -> Any:
    with trio.CancelScope() as scope:
        strike.cancel = scope.cancel
        return await call()
    raise _Ended


async def _in_asyncio(call: Callable[[], Awaitable[Any]], strike: Strike) -> Any:
    ended: list[tuple[Any, BaseException | None]] = []

    async def handler() -> None:
        try:
            ended.append((await call(), None))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end the whole loop
            ended.append((None, error))

    task = asyncio.ensure_future(handler())
    strike.cancel = task.cancel
    await asyncio.wait([task])
    # Without an end it was cancelled before it began.
    value, error = ended[0] if ended else (None, asyncio.CancelledError())
    if isinstance(error, asyncio.CancelledError) and strike.reason is not None:
        raise _Ended
    if error is not None:
        raise error
    return value
