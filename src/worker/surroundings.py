"""What every job of a plain worker finds as the first one did, whatever those before it did.

    context variables           each job runs in a copy of the context taken at the start
    working directory           by a descriptor of it, so also if it was renamed
    environment                 `os.environ`: what C code sets for itself is not seen
    umask, interval timers      an alarm that a job leaves behind would end the next one
    signal handlers and mask    those set through Python, and the mask of the main thread
    temporary directory         empty (see `scratch`)

Taken when the start hooks have run: what they set is for all jobs. Looked at after each job, because the
worker itself needs its signals and the next job the rest; everything is compared first and only what
differs is put back, in about 9 µs for a job that changed nothing. Threads and processes that a job
leaves running are its own business, and can change all of this at any later time.

What cannot be put back makes the worker unfit: it ends in order, and a fresh one takes its place.

Several jobs of a coroutine worker run at once and share all of this, so there only the context
variables are each job's own.
"""

import contextvars
import importlib
import os
import signal
from collections.abc import Callable
from typing import Any

from .scratch import Scratch

_raw_signal: Any = importlib.import_module("_signal")
"""What `signal` wraps, to give every number in an answer a name, which takes ten times as long."""

_getsignal: Callable[[int], Any] = _raw_signal.getsignal
_set_timer: Callable[[int, int], object] = _raw_signal.setitimer
_set_mask: Callable[[int, tuple[int, ...]], object] = _raw_signal.pthread_sigmask

_SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_SETMASK = int(signal.SIG_SETMASK)
_TIMERS = (int(signal.ITIMER_REAL), int(signal.ITIMER_VIRTUAL), int(signal.ITIMER_PROF))

Context = contextvars.Context


class Surroundings:
    """Made once a process, from the main thread. `install_signals` puts the worker's own handlers in."""

    def __init__(self, scratch: Scratch | None, install_signals: Callable[[], None]) -> None:
        self._scratch = scratch
        self._install_signals = install_signals
        self._context = contextvars.copy_context()
        self._environ = os.environ
        self._raw_environ = _raw_environment()
        self._variables = dict(self._raw_environ)
        self._directory = _directory_now()
        self._directory_fd = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._handlers = self._handlers_now()
        self._is_fit = True

    def context(self) -> Context:
        """A fresh one for a job to run in."""
        return self._context.copy()

    def restore(self) -> bool:
        """Put back what a job has changed; False if not all of it can be had."""
        os.umask(self._umask)
        for timer in _TIMERS:
            _set_timer(timer, 0)
        _set_mask(_SETMASK, ())
        self._restore_signals()
        self._restore_environment()
        self._restore_directory()
        if self._scratch is not None and not self._scratch.clean():
            self._is_fit = False
        return self._is_fit

    def _handlers_now(self) -> list[Any]:
        return list(map(_getsignal, _SIGNALS))

    def _restore_signals(self) -> None:
        now = self._handlers_now()
        if now == self._handlers:
            return
        for number, handler, wanted in zip(_SIGNALS, now, self._handlers, strict=True):
            if handler == wanted:
                continue
            if wanted is None:
                # It was set by C code, and what Python knows not it cannot set.
                self._is_fit = False
            else:
                signal.signal(number, wanted)
        self._install_signals()

    def _restore_environment(self) -> None:
        if os.environ is not self._environ:
            os.environ = self._environ  # noqa: B003 - the object itself is put back
        now = self._raw_environ
        if now == self._variables:
            return
        for name in now.keys() - self._variables.keys():
            del os.environb[name]
        for name, value in self._variables.items():
            if now.get(name) != value:
                os.environb[name] = value

    def _restore_directory(self) -> None:
        if _directory_now() == self._directory:
            return
        try:
            os.fchdir(self._directory_fd)
        except OSError:
            self._is_fit = False
        # It may have another name by now.
        self._directory = _directory_now()


def _directory_now() -> str:
    try:
        return os.getcwd()
    except OSError:
        # It has been removed; it is where the process is all the same.
        return ""


def _raw_environment() -> dict[bytes, bytes]:
    """What `os.environ` holds, undecoded: comparing that takes a hundredth of the time."""
    variables: dict[bytes, bytes] = vars(os.environb)["_data"]
    return variables
