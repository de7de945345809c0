"""Isolated jobs: each attempt in a process of its own, forked from the worker and gone when it is over.

    worker   fork -> read the answer from a pipe -> wait for the end of the process -> answer the broker
    child    start hooks -> the attempt, as in any worker -> the answer into the pipe -> stop hooks -> exit

The worker stands still meanwhile and keeps everything that the outside knows it by: its start page names
the token, its connection holds the lease, the supervisor beats for it. So nothing else in stoker has to
know that there is one process more.

**A crash** of the child is the attempt's `crash` (or `memory`, see there), with signal or status, peak
memory and CPU time. What it left behind is swept, and with it what earlier jobs of the worker left running,
as when a worker crashes; then the worker takes its next job. An answer counts when
it is whole, whatever becomes of the child afterwards. A child that ends without one, exit status 0 or not,
has crashed.

**A strike** comes to the worker, whose page the supervisor writes. The worker raises nothing, but signals
the child, which shares the page and finds its own token there, and whose handler then gets the exception
like any other. One that goes on all the same is killed after the grace together with its worker, as in
any worker. That a strike was meant is looked up once more when the child is known here: one that came
before had nobody to pass it on to.

**Death of the worker** takes the child with it, by the kernel. The supervisor's sweep finds the rest by the
worker's marker, which the child inherits; it has a session of its own, so that a handler that signals its
group does not hit the worker.

**Descriptors.** Sockets that start hooks and earlier jobs opened are replaced by /dev/null in the child, each
under its number, because two processes must not share one. So the start hooks are called again here, and
what they open is the child's. The worker's own connection stays, for what a handler says while it runs:
those are single writes, and the worker writes nothing meanwhile. Files and pipes stay: they may be logs.
Threads of the worker do not exist in the child; a lock that one of them held at the fork stays locked.

What is left to the time limit: a child that is stopped by SIGSTOP is seen by nobody else.
"""

import os
import select
import signal
import stat
from collections.abc import Callable, Collection
from typing import NoReturn

from ..proto import codec, limits
from ..proto.errors import RemoteProtocolError
from ..proto.frames import FrameReader
from ..proto.work import Ack, Nack
from . import attempt, log, process
from .attempt import Guard
from .hooks import LAST_MS, STOP_MS, Hooks
from .link import Link
from .output import JobOutput
from .process import Pidfd
from .report import reason_of, report_of
from .startpage import StartPage, Token
from .sweep import sweep_own

LEAVE_MS = STOP_MS + 2 * LAST_MS
"""How long a child may take to end after its answer. Its stop hooks are bounded by less."""

_SLOT = 0
_ACK, _NACK = 0, 1


class Isolation:
    """Runs attempts in children. One at a time; for the main thread."""

    def __init__(
        self, hooks: Hooks, link: Link, page: StartPage, guard: Guard, nonce: str, output: JobOutput
    ) -> None:
        self._hooks = hooks
        self._nonce = nonce
        self._link = link
        self._page = page
        self._guard = guard
        self._output = output

    def run(self, token: Token, work: Callable[[], Ack | Nack]) -> Ack | Nack:
        """Have `work` done in a child. Raises nothing."""
        self._guard.struck = None
        try:
            reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            return _unforked(token, error)
        process.flush_streams()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        worker = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return _unforked(token, error)
        if pid == 0:
            self._be_child(worker, token, work, writer)
        # First, so that there is a descriptor to open it with.
        os.close(writer)
        child = Pidfd(pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            return self._attend(child, token, reader)
        finally:
            os.close(reader)
            child.close()

    # --- the worker --------------------------------------------------------------------------------------

    def _attend(self, child: Pidfd, token: Token, reader: int) -> Ack | Nack:
        guard = self._guard
        guard.deputy, guard.armed = child, token
        reason = self._page.kill_reason(_SLOT, token)
        if reason is not None:
            guard.pass_on(reason)
        answer = _read(reader, child)
        if not child.has_exited(LEAVE_MS):
            child.send(signal.SIGKILL)
        ended = _reap(child)
        guard.armed = guard.deputy = None
        mark = self._page.memory_mark(_SLOT)
        self._page.mark_memory(_SLOT, 0)
        if answer is not None:
            return answer
        if guard.struck is not None:
            return attempt.struck_and_gone(token, guard.struck)
        sweep_own(self._nonce)
        return _crashed(token, *ended, mark)

    # --- the child -----------------------------------------------------------------------------------------

    def _be_child(self, worker: int, token: Token, work: Callable[[], Ack | Nack], writer: int) -> NoReturn:
        status = 1
        try:
            process.die_with_parent(worker)
            os.setsid()
            process.set_name("stoker-job")
            _let_go_of_sockets({self._link.fileno()} if self._link.is_open else set())
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _write(writer, self._answer(token, work))
            self._hooks.stop(log.say)
            status = 0
        finally:
            # Whatever passed here and whoever came back here, as a handler's own fork may have.
            try:
                process.flush_streams()
            finally:
                os._exit(status)

    def _answer(self, token: Token, work: Callable[[], Ack | Nack]) -> Ack | Nack:
        own = os.getpid()
        try:
            with self._output.aside():
                self._hooks.start()
            answer = work()
        except BaseException as error:  # noqa: BLE001 - it is an app's, and becomes the attempt's
            answer = Nack(token, "error", reason_of(error), report_of(error))
        if os.getpid() != own:
            os._exit(0)
        return answer


def _let_go_of_sockets(kept: Collection[int]) -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in process.open_descriptors():
        if fd > 2 and fd not in kept and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.dup2(null, fd, inheritable=False)
    os.close(null)


def _write(fd: int, answer: Ack | Nack) -> None:
    # A frame like those of the wire, with a number for the op and one for the request.
    view = memoryview(codec.encode((_ACK if isinstance(answer, Ack) else _NACK, 0, *answer)))
    while view:
        view = view[os.write(fd, view) :]


def _read(fd: int, child: Pidfd) -> Ack | Nack | None:
    """The child's answer; None if it has ended without one.

    The end of the pipe means nothing: what the job left running may hold it open, and a handler that
    closes descriptors closes it while it still runs.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(child.fd, select.POLLIN)
    reader = FrameReader()
    while True:
        ready = {number for number, _ in poll.poll()}
        chunk = os.read(fd, limits.READ_BYTES) if fd in ready else b""
        if chunk:
            reader.feed(chunk)
            try:
                body = reader.next_frame()
                if body is not None:
                    return _decode(body)
            except (RemoteProtocolError, IndexError, TypeError):
                # The handler wrote into a descriptor that was not its own: it can say nothing more.
                poll.unregister(fd)
        elif fd in ready:
            poll.unregister(fd)
        elif child.fd in ready:
            return None


def _decode(body: bytes) -> Ack | Nack:
    kind, _, *fields = codec.decode(body)
    return Ack(*fields) if kind == _ACK else Nack(*fields)


def _reap(child: Pidfd) -> tuple[int | None, int, int]:
    """Exit code as Python gives it (negative: a signal), peak memory, CPU time in ms."""
    try:
        _, status, usage = os.wait4(child.pid, 0)
    except ChildProcessError:
        # A start hook has made the kernel, or a thread of its own, reap children.
        return None, 0, 0
    cpu_ms = round((usage.ru_utime + usage.ru_stime) * limits.SECOND_MS)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss * limits.KIB, cpu_ms


def _unforked(token: Token, error: OSError) -> Nack:
    return Nack(token, "error", f"no process could be made for it: {reason_of(error)}")


def _crashed(token: Token, code: int | None, peak_bytes: int, cpu_ms: int, mark: int) -> Nack:
    number = -code if code is not None and code < 0 else None
    status = code if code is not None and code >= 0 else None
    how = (
        "status unknown" if code is None else f"exit status {code}" if number is None else f"signal {number}"
    )
    outcome, reason = "crash", f"its process died ({how})"
    if number is not None and 0 < mark <= peak_bytes:
        outcome, reason = "memory", f"{reason} at its memory limit"
    return Nack(token, outcome, reason, "", None, 0, number, status, peak_bytes, cpu_ms)
