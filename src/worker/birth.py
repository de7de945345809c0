"""From a fresh fork of the zygote to a working worker: what must not be inherited, and in which order.

The zygote forks with every signal blocked, so nothing happens in between. First of all the kernel is
told to kill this process with the zygote; then it leaves the session, lets go of signals handlers and
descriptors, marks itself, and only then unblocks. It ends by `os._exit` always: the exit handlers that
the import of the app registered are the zygote's to run, once.

Descriptors that the import of the app opened are not closed but replaced by /dev/null, each under its
number. Python objects that believe to own a number still exist in the copied memory; if the number
were free, the broker's connection could get it, and their end would close it, or their text go there.
"""

import gc
import io
import os
import random
import signal
import sys
from typing import Any

from ..proto import limits
from ..proto.messages import Hello
from . import process
from .app import App
from .control import Start
from .link import Link
from .process import MarkerSpace
from .startpage import StartPage
from .sync_worker import SyncWorker

SLOTS = 1

_KEPT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these from its start, and turns them into errors."""


def work(app: App, start: Start, nonce: str, page_fd: int, zygote_pid: int, marker: MarkerSpace) -> int:
    """Be a worker until it ends; its exit status."""
    process.die_with_parent(zygote_pid)
    os.setsid()
    process.set_name("stoker-worker")
    _reset_signals()
    page = StartPage(page_fd, SLOTS)
    os.close(page_fd)
    _let_go_of_descriptors()
    random.seed()
    marker.write(nonce)
    os.environ["STOKER_SOCKET"] = start.socket
    for stream in (sys.stdout, sys.stderr):
        # Output of jobs is to be seen when it is written, also through a pipe.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    gc.enable()
    worker = SyncWorker(app, Link(start.socket, _greeting(app, start, nonce)), page, nonce)
    worker.install_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    app.run_start_hooks()
    return worker.run()


def _greeting(app: App, start: Start, nonce: str) -> Any:
    identity = process.identity(nonce)
    kinds = list(app.handlers)

    def greet(held: list[list[Any]]) -> Hello:
        return Hello(limits.PROTOCOL_VERSION, "work", start.name, identity, start.ticket, kinds, SLOTS, held)

    return greet


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in _KEPT_IGNORED and signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)


def _let_go_of_descriptors() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    for fd in process.open_descriptors():
        if fd > 2 and fd != null:
            os.dup2(null, fd, inheritable=False)
    os.close(null)
