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
from typing import Any, Protocol

from ..proto import limits
from ..proto.messages import Hello
from . import log, process, records
from .app import App
from .control import Fork, Start
from .flavour import Flavour
from .link import Link
from .output import JobOutput, OutputRules
from .process import MarkerSpace
from .scratch import Scratch, path_of
from .startpage import StartPage
from .sync_worker import SyncWorker


class Worker(Protocol):
    """What all flavours have in common."""

    @property
    def slots(self) -> int:
        """How many jobs it takes at once."""
        ...

    @property
    def prefetch(self) -> int:
        """How many it takes ahead of those."""
        ...

    def install_signals(self) -> None: ...

    def run(self) -> int:
        """Work until TERM; the exit status."""
        ...


_KEPT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these from its start, and turns them into errors."""


def work(
    app: App,
    start: Start,
    fork: Fork,
    page_fd: int,
    *,
    zygote_pid: int,
    marker: MarkerSpace,
    beside_threads: bool,
) -> int:
    """Be a worker until it ends; its exit status. `beside_threads`: the zygote had some when it forked."""
    process.die_with_parent(zygote_pid)
    os.setsid()
    process.set_name(process.WORKER_NAME)
    process.go_first_when_memory_is_short()
    _reset_signals()
    page = StartPage(page_fd, fork.slots)
    os.close(page_fd)
    _let_go_of_descriptors()
    random.seed()
    marker.write(fork.nonce)
    os.environ[process.SOCKET] = start.socket
    for stream in (sys.stdout, sys.stderr):
        # Output of jobs is to be seen when it is written, also through a pipe.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    gc.enable()
    output = JobOutput(OutputRules(start.attributed, start.capture_bytes, start.log_format))
    worker = _worker(app, start, fork, page, output, beside_threads)
    worker.install_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    app.hooks.start()
    output.install()
    records.provide_handlers(output)
    status = worker.run()
    # By now every answer has arrived and the connection is closed: nobody waits for what comes.
    app.hooks.stop(log.say)
    return status


def _worker(
    app: App, start: Start, fork: Fork, page: StartPage, output: JobOutput, beside_threads: bool
) -> Worker:
    flavour = Flavour(fork.flavour)
    kinds = [kind for kind, handler in app.handlers.items() if handler.flavour is flavour]
    identity = process.identity(fork.nonce)

    def greet(held: list[list[Any]]) -> Hello:
        return Hello(
            limits.PROTOCOL_VERSION,
            "work",
            start.name,
            identity,
            start.ticket,
            kinds,
            worker.slots,
            held,
            start.queues,
            worker.prefetch,
        )

    worker: Worker
    if flavour is Flavour.PLAIN:
        directory = Scratch(path_of(fork.nonce, start.scratch)) if start.scratch else None
        worker = SyncWorker(
            app,
            Link(start.socket, greet),
            page,
            fork.nonce,
            memory_max=start.memory_max,
            scratch=directory,
            output=output,
            beside_threads=beside_threads,
            prefetch=start.prefetch,
        )
    else:
        # Imported by the zygote already, if the app has any use for it.
        from .async_worker import AsyncWorker

        link = Link(start.socket, greet, waits=False)
        worker = AsyncWorker(app, flavour, link, page, output, start)
    return worker


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
