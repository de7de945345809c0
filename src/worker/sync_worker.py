"""The worker for plain functions: one thread, one slot, jobs one after the other.

    loop:  a job has come -> run it | nothing has -> sleep until something comes | no link -> reconnect

    a job: token into the start page; is it to be ended already?; handler; answer; confirmation; token out

The token leaves the page only when the broker has confirmed the answer, or the next job's takes its
place. A worker that dies before that may take the answer with it, and the job runs again: then its
first run is on record, because the page still names it. If the broker did read the answer, that counts
and the page is ignored. A worker that dies between jobs is charged to nobody.

Signals. TERM sets a flag, and wakes the loop if it sleeps; nothing is raised, so no frame is ever cut.
The strike signal raises in the handler, and only there (see `attempt.Guard`). The reconnect signal
serves the handler that outlasts a broker: the supervisor sends it when the broker is back, and the
connection is made from within the signal handler, while the job's handler stands still. Handlers run
in the main thread for that. INT is ignored: at a terminal it reaches everybody, and the supervisor
decides.

What a struck handler started is killed before its end is told; what others started is their business.
A handler may fork, and its child may come back here as if it were the worker. It has another pid, and
ends at once.
"""

import faulthandler
import os
import select
import signal
import time
from types import FrameType

from ..proto import limits, work
from . import attempt, log
from .app import App
from .attempt import Guard
from .context import CurrentJob, set_current_job
from .link import HelloRefusedError, Link
from .process import RECONNECT_SIGNAL, STRIKE_SIGNAL, disregard
from .startpage import StartPage, Token
from .sweep import sweep_own

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1000

LEAVE_MS = 5000
"""How long a worker that ends waits for the broker to confirm what it was told."""

IDLE_MS = 50
"""Without a job for so long, a worker looks after itself before it goes to sleep."""

SIGNALS_CHECKED_EVERY = 16
"""Jobs. The check costs a fifth of what a job without work costs."""

_SLOT = 0


class SyncWorker:
    """See the module. Everything it needs was made before the fork or is given here."""

    def __init__(self, app: App, link: Link, page: StartPage, nonce: str) -> None:
        self._handlers = {kind: handler.function for kind, handler in app.handlers.items()}
        self._link = link
        self._page = page
        self._nonce = nonce
        self._guard = Guard()
        self._pid = os.getpid()
        self._ending = False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._polled_generation = -1

    def install_signals(self) -> None:
        """Also after a handler has installed its own."""
        disregard(signal.SIGINT)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(STRIKE_SIGNAL, self._on_strike)
        signal.signal(RECONNECT_SIGNAL, self._on_reconnect)
        # By its C handler, so the dump comes also when a call into C never lets Python's run.
        faulthandler.register(STRIKE_SIGNAL, file=2, all_threads=True, chain=True)

    def run(self) -> int:
        """Work until TERM; the exit status."""
        self._page.say_came_up()
        try:
            while not self._ending:
                self._turn()
            self._leave()
        except HelloRefusedError as error:
            log.say("worker_refused", pid=self._pid, error=error)
            return 1
        return 0

    def _turn(self) -> None:
        link = self._link
        if not link.is_open:
            self._reconnect()
        elif link.jobs:
            self._run(link.jobs.popleft())
        elif self._sleep(IDLE_MS) or self._idle():
            self._receive()

    def _idle(self) -> bool:
        """Nothing has come for a while: time to mend what handlers may have done to the signals."""
        self._check_signals()
        return self._sleep(None)

    def _receive(self) -> None:
        """Take in what the broker sent; a confirmed attempt leaves the start page."""
        self._link.receive()
        if not self._link.owes:
            self._page.clear(_SLOT)

    # --- one job -------------------------------------------------------------------------------------

    def _run(self, job: work.Job) -> None:
        token: Token = (job.token[0], job.token[1])
        self._page.start(_SLOT, token)
        answer = self._attempt(job, token)
        if os.getpid() != self._pid:
            os._exit(0)
        if self._guard.struck is not None:
            # It may be cancelled, or run elsewhere, as soon as this is answered.
            sweep_own(self._nonce)
            self._guard.struck = None
        self._link.answer(answer)
        self._page.count_finished()
        if not self._page.finished_count % SIGNALS_CHECKED_EVERY:
            self._check_signals()

    def _attempt(self, job: work.Job, token: Token) -> work.Ack | work.Nack:
        reason = self._page.kill_reason(_SLOT, token)
        if reason is not None:
            return attempt.never_run(token, reason)
        function = self._handlers.get(job.kind)
        if function is None:
            return attempt.unknown_kind(token, job.kind)
        deadline = time.monotonic() + job.time_limit_ms / 1000
        set_current_job(
            CurrentJob(job.id, job.attempt, token, job.kind, job.queue, job.headers or {}, deadline)
        )
        answer = attempt.run(function, token, job.payload, self._guard)
        set_current_job(None)
        return answer

    def _check_signals(self) -> None:
        """A handler may have left its own signal handlers in place of this worker's, or a mask."""
        own = (
            (signal.SIGTERM, self._on_term),
            (STRIKE_SIGNAL, self._on_strike),
            (RECONNECT_SIGNAL, self._on_reconnect),
        )
        if any(signal.getsignal(number) != handler for number, handler in own):
            self.install_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    # --- waiting -------------------------------------------------------------------------------------

    def _sleep(self, timeout_ms: float | None) -> bool:
        """Wait for bytes from the broker; False if the time passed or a signal woke it."""
        if self._polled_generation != self._link.generation:
            self._watch()
        # Only while asleep, because trio and asyncio in a handler want this descriptor for themselves.
        # Set first, then look at the flag: a signal comes before the look, or wakes the poll.
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        try:
            ready = [] if self._ending else self._poll.poll(timeout_ms)
        finally:
            signal.set_wakeup_fd(-1)
        if any(fd == self._wake_reader for fd, _ in ready):
            _drain(self._wake_reader)
        return self._link.is_open and any(fd != self._wake_reader for fd, _ in ready)

    def _watch(self) -> None:
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        if self._link.is_open:
            self._poll.register(self._link, select.POLLIN)
            self._polled_generation = self._link.generation
        else:
            self._polled_generation = -1

    def _reconnect(self) -> None:
        backoff_ms = BACKOFF_MS_MIN
        while not self._ending and not self._link.open():
            self._polled_generation = -1
            self._sleep(backoff_ms)
            backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)

    def _leave(self) -> None:
        """Give back what was not started, and see that every answer has arrived."""
        link = self._link
        end = time.monotonic() + LEAVE_MS / 1000
        for job in link.jobs:
            link.answer(work.Release(job.token, "not_started"))
        link.jobs.clear()
        while link.owes and time.monotonic() < end:
            if not link.is_open and not link.open():
                time.sleep(BACKOFF_MS_MIN / 1000)
            elif link.is_open:
                self._await_answer(end)
        link.close()

    def _await_answer(self, end: float) -> None:
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        if poll.poll(max(0.0, end - time.monotonic()) * 1000):
            self._receive()

    # --- signals -------------------------------------------------------------------------------------

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._ending = True

    def _on_strike(self, number: int, frame: FrameType | None) -> None:
        token = self._guard.armed
        if token is None:
            return
        reason = self._page.kill_reason(_SLOT, token)
        if reason is not None:
            self._guard.strike(reason)

    def _on_reconnect(self, number: int, frame: FrameType | None) -> None:
        token = self._guard.armed
        if token is None:
            # Not in a handler: the loop itself sees that the connection has ended.
            return
        # No strike may come into the middle of what follows; one that does is made up for at the end.
        self._guard.armed = None
        try:
            if self._link.is_dead():
                self._link.open(token)
        except HelloRefusedError as error:
            log.say("worker_refused", pid=self._pid, error=error)
        finally:
            self._guard.armed = token
        self._on_strike(number, frame)


def _drain(fd: int) -> None:
    try:
        os.read(fd, limits.READ_BYTES)
    except BlockingIOError:
        return
