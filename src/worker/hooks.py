"""Hooks: what an app has done in its workers besides jobs.

    on_start     in each new process that runs jobs, before its first; an error ends the process
    around_job   a context manager around each job, entered right before the handler
    on_stop      before the process ends in order: a drain, a replaced worker, an isolated job's process
    on_dead      when a job has become dead, as a job of its own in some worker (see `deaths`)

Start hooks run in the order of their declaration, contexts nest in it (the first is outermost), stop
hooks run in the reverse.

A context belongs to the attempt. The time limit counts it in; an exception of the job is thrown into it
as by any `with` statement, so it may see it, replace it or swallow it (then the job has succeeded, with
no result). An exception of its own is the attempt's, of the type that it has, and the report says which
hook it came from.

Stop hooks have STOP_MS together. Nothing in Python bounds a call into C, so two watches from outside
Python do: a thread of `faulthandler`'s, which says where the hook hangs and ends the process, and should
that thread hang itself in a full pipe, the kernel's timer. Every answer has left by then, so whatever
becomes of stop hooks is no job's end. After SIGKILL nothing runs, and no hook may be relied on to.
"""

import faulthandler
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..proto import limits
from .deaths import DeadJob

if TYPE_CHECKING:
    from .context import CurrentJob

STOP_MS = 5 * limits.SECOND_MS
"""For all stop hooks of a process. A worker that is replaced is missing for so long at worst."""

LAST_MS = 500
"""How long the watch may take to say where a stop hook hangs."""

_GENERATOR = 0x20
_ASYNC = 0x80 | 0x200
"""`CO_GENERATOR`; `CO_COROUTINE` and `CO_ASYNC_GENERATOR`."""

F = TypeVar("F", bound=Callable[..., object])
Hook = Callable[[], object]
Context = Callable[["CurrentJob"], AbstractContextManager[object]]


class Hooks:
    """The hooks of one app."""

    def __init__(self) -> None:
        self._start: list[Hook] = []
        self._around: list[tuple[str, Context]] = []
        self._stop: list[Hook] = []
        self._dead: list[Callable[[DeadJob], object]] = []

    def include(self, other: "Hooks") -> None:
        """Take over another app's, after those that are here."""
        self._start += other._start
        self._around += other._around
        self._stop += other._stop
        self._dead += other._dead

    def add_start(self, function: Hook) -> None:
        """TypeError for a function that does nothing when it is called."""
        self._start.append(_plain("on_start", function))

    def add_stop(self, function: Hook) -> None:
        """TypeError for a function that does nothing when it is called."""
        self._stop.append(_plain("on_stop", function))

    def add_around(self, function: Callable[..., Any]) -> None:
        """A generator function that yields once, or anything that makes a context manager of a job."""
        flags = _flags(function)
        if flags & _ASYNC:
            raise TypeError(f"around_job: {_name(function)} is async; a plain generator function is wanted")
        self._around.append((_name(function), contextmanager(function) if flags & _GENERATOR else function))

    def add_dead(self, function: Callable[[DeadJob], object]) -> None:
        """TypeError for a function that does nothing when it is called."""
        self._dead.append(_plain("on_dead", function))

    @property
    def has_dead(self) -> bool:
        """Somebody wants to hear of jobs that became dead."""
        return bool(self._dead)

    # --- in a worker -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Call the start hooks. The first exception passes, with a note of the hook it came from."""
        for hook in self._start:
            try:
                hook()
            except BaseException as error:
                _note(error, f"raised by the on_start hook {_name(hook)}")
                raise

    def around(self, job: "CurrentJob") -> ExitStack:
        """Enter the contexts for a job; they are left with the stack."""
        with ExitStack() as stack:
            for name, make in self._around:
                stack.enter_context(_Named(name, make, job))
            return stack.pop_all()

    def within(self, function: Callable[..., Any], job: Callable[[], "CurrentJob"]) -> Callable[..., Any]:
        """The function, to run in the contexts for what `job` says runs; itself if there are none."""
        if not self._around:
            return function

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.around(job()):
                return function(*args, **kwargs)

        return call

    def within_task(
        self, function: Callable[..., Awaitable[Any]], job: Callable[[], "CurrentJob"]
    ) -> Callable[..., Awaitable[Any]]:
        """The same for a coroutine function. The contexts are plain ones, so they hold up the loop."""
        if not self._around:
            return function

        async def call(*args: Any, **kwargs: Any) -> Any:
            with self.around(job()):
                return await function(*args, **kwargs)

        return call

    def dead(self, job: DeadJob) -> None:
        """Tell the hooks of a death. The first exception passes, with a note of the hook it came from."""
        for hook in self._dead:
            try:
                hook(job)
            except BaseException as error:
                _note(error, f"raised by the on_dead hook {_name(hook)}")
                raise

    def stop(self, say: Callable[..., None], within_ms: int = STOP_MS) -> None:
        """Call every stop hook; `say` is told of those that raise. The process ends if they take too long."""
        if not self._stop:
            return
        _watch(within_ms)
        for hook in reversed(self._stop):
            try:
                hook()
            except BaseException as error:  # noqa: BLE001 - the other hooks have things to close as well
                say("stop_hook_failed", pid=os.getpid(), hook=_name(hook), error=_shown(error))
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Named:
    """A context that signs what it raises."""

    def __init__(self, name: str, make: Context, job: "CurrentJob") -> None:
        self._name = name
        self._make = make
        self._job = job
        self._stack = ExitStack()

    def __enter__(self) -> None:
        try:
            self._stack.enter_context(self._make(self._job))
        except BaseException as error:
            self._sign(error)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return self._stack.__exit__(kind, error, trace)
        except BaseException as own:
            if own is not error:
                self._sign(own)
            raise

    def _sign(self, error: BaseException) -> None:
        _note(error, f"raised by the around_job hook {self._name}")


def _watch(within_ms: int) -> None:
    """See that the process ends, in `within_ms` and a moment at the latest."""
    faulthandler.dump_traceback_later(within_ms / 1000, exit=True, file=2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, (within_ms + LAST_MS) / 1000)


def _plain(hook: str, function: F) -> F:
    if _flags(function) & (_ASYNC | _GENERATOR):
        raise TypeError(
            f"{hook}: {_name(function)} does nothing when it is called; a plain function is wanted"
        )
    return function


def _flags(function: Callable[..., Any]) -> int:
    # By the flags of the code: `inspect` would be the largest module that an app loads.
    flags: int = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags


def _name(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def _note(error: BaseException, text: str) -> None:
    try:
        error.add_note(text)
    except Exception:  # noqa: BLE001 - a stranger's class may refuse it, and its error counts for more
        return


def _shown(error: BaseException) -> str:
    # Here, because it loads `traceback`, which programs that only enqueue have no use for.
    from .report import reason_of

    return reason_of(error)
