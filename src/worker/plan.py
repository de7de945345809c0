"""How a plain worker runs each kind: what is around the handler, put together once and not for each job.

    memory limit ( contexts of the app's hooks ( handler ) )

The limit holds for the contexts as well. Whether the attempt has a process of its own is not a matter of
the call: the worker asks `is_isolated` before it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from .app import App, Handler
from .context import current_job
from .faults import Faults
from .memory import MemoryLimit
from .signature import Fit
from .startpage import StartPage

_SLOT = 0


class Plan:
    """Of one kind."""

    __slots__ = ("call", "faults", "fits", "is_isolated", "limit")

    def __init__(self, app: App, handler: Handler[..., Any], page: StartPage, memory_max: int) -> None:
        """`memory_max` is the pool's, for kinds that declare none; 0 for no limit."""
        self.fits: Fit = handler.fits
        self.faults: Faults = handler.faults
        self.is_isolated = handler.isolate
        self.limit: MemoryLimit | None = None
        self.call: Callable[..., Any] = app.hooks.within(handler.function, current_job)
        bytes_max = handler.memory_max or memory_max
        if bytes_max:
            self.limit = MemoryLimit(bytes_max, partial(page.mark_memory, _SLOT))
            self.call = self.limit.within(self.call)
