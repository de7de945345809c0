"""The worker for plain functions: one thread, one slot, jobs one after the other.

    loop:  a job has come -> run it | nothing has -> sleep until something comes | no link -> reconnect

    a job: token into the start page; is it to be ended already?; handler; answer; confirmation; token out

The token leaves the page only when the broker has confirmed the answer. A worker that dies before that may
take the answer with it, and the job runs again: then its first run is on record, because the page still
names it. If the broker did read the answer, that counts and the page is ignored. A worker that dies
between jobs is charged to nobody.

Jobs may be here ahead of the one that runs, if the pool wants that. Each is begun without asking anybody, after one look at whether it
has been recalled; so the page names what is over and unconfirmed beside what runs.

Signals. TERM sets a flag, and wakes the loop if it sleeps; nothing is raised, so no frame is ever cut.
The strike signal raises in the handler, and only there (see `attempt.Guard`). The reconnect signal
serves the handler that outlasts a broker: the supervisor sends it when the broker is back, and the
connection is made from within the signal handler, while the job's handler stands still. Handlers run
in the main thread for that. INT is ignored: at a terminal it reaches everybody, and the supervisor
decides.

What a struck handler started is killed before its end is told; what others started is their business.
When the end of a job has been told, the process is put back into the state in which it found it (see
`surroundings`), and gives back memory if the job was a big one. A worker that cannot be put back ends in
order, like one that was told to. So does one that was forked beside threads of the app, after it was struck:
a lock that one of them held at the fork stays locked here for ever, and would hold up each job that wants it.
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
from .flavour import Flavour
from .isolated import Isolation
from .link import HelloRefusedError, Link
from .memory import QUICK_S, Trimmer
from .output import JobOutput
from .plan import Plan
from .process import RECONNECT_SIGNAL, STRIKE_SIGNAL, disregard, join_fence
from .reporter import Reporter
from .scratch import Scratch
from .startpage import OVER_MAX, StartPage, Token
from .surroundings import Surroundings
from .sweep import sweep_own

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1000

LEAVE_MS = 5000
"""How long a worker that ends waits for the broker to confirm what it was told."""

_SLOT = 0


class SyncWorker:
    """See the module. Everything it needs was made before the fork or is given here."""

    def __init__(
        self,
        app: App,
        link: Link,
        page: StartPage,
        nonce: str,
        *,
        memory_max: int = 0,
        scratch: Scratch | None = None,
        output: JobOutput,
        beside_threads: bool,
        prefetch: int = 0,
    ) -> None:
        """`memory_max` bytes for a job whose kind declares no limit of its own; 0: no limit."""
        self._plans = {
            kind: Plan(app, handler, page, memory_max)
            for kind, handler in app.handlers.items()
            if handler.flavour is Flavour.PLAIN
        }
        self._link = link
        self._page = page
        self._nonce = nonce
        self._guard = Guard()
        self._reporter = Reporter(link.say, page, _SLOT)
        self._isolation = Isolation(app.hooks, link, page, self._guard, nonce, output)
        self._output = output
        self._scratch = scratch
        self._beside_threads = beside_threads
        self._surroundings: Surroundings
        self._trimmer: Trimmer
        self._pid = os.getpid()
        self._ending = False
        self._prefetch = prefetch if prefetch and join_fence() else 0
        self._last: Token | None = None
        """The attempt in the slot, if it is over and not confirmed."""
        self._over: dict[Token, int] = {}
        """Those before it that are not confirmed either, with their places in the page."""
        self._places = list(range(OVER_MAX))
        link.confirmed = self._confirmed
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._polled_generation = -1

    @property
    def slots(self) -> int:
        """How many jobs it takes at once."""
        return 1

    @property
    def prefetch(self) -> int:
        """How many it takes ahead of it: none where they could not be taken back."""
        return self._prefetch

    def install_signals(self) -> None:
        """Also after a handler has installed its own."""
        disregard(signal.SIGINT)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(RECONNECT_SIGNAL, self._on_reconnect)
        # By its C handler, so the dump comes also when a call into C never lets Python's run. Anew, for it
        # does nothing where it believes to be registered, whatever has been set over it.
        faulthandler.unregister(STRIKE_SIGNAL)
        signal.signal(STRIKE_SIGNAL, self._on_strike)
        faulthandler.register(STRIKE_SIGNAL, file=2, all_threads=True, chain=True)

    def prepare(self) -> None:
        """Take down how every job shall find the process. Start hooks have had their way with it."""
        self.install_signals()
        if self._scratch is not None and not self._scratch.make():
            log.say("worker_without_scratch", pid=self._pid, path=self._scratch.path)
            self._scratch = None
        self._surroundings = Surroundings(self._scratch, self.install_signals)
        self._trimmer = Trimmer()

    def run(self) -> int:
        """Work until TERM; the exit status."""
        self.prepare()
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
        elif link.jobs and (self._places or self._last is None):
            self._run(link.jobs.popleft())
        elif self._sleep(None):
            self._receive()

    def _receive(self) -> None:
        """Take in what the broker sent; a confirmed attempt leaves the start page."""
        self._link.receive()
        if not self._link.owes:
            self._page.clear(_SLOT)

    # --- one job -------------------------------------------------------------------------------------

    def _run(self, job: work.Job) -> None:
        token: Token = (job.token[0], job.token[1])
        started = time.monotonic()
        self._make_way()
        self._page.start(_SLOT, token)
        if self._page.is_recalled(token):
            self._page.clear(_SLOT)
            self._link.answer(work.Release(job.token, "not_started"))
            return
        answer = self._attempt(job, token)
        if os.getpid() != self._pid:
            os._exit(0)
        if self._guard.struck is not None:
            # It may be cancelled, or run elsewhere, as soon as this is answered.
            sweep_own(self._nonce)
            self._guard.struck = None
            if self._beside_threads:
                self._end_unfit(job.kind, "it may have waited for a lock of a thread that is not here")
        self._last = token
        self._link.answer(answer)
        self._page.count_finished()
        if not self._surroundings.restore():
            self._end_unfit(job.kind, "it left what cannot be put back")
        if time.monotonic() - started > QUICK_S:
            self._trimmer.job_ended()

    def _make_way(self) -> None:
        """The slot is needed, and what it names may be all that will be known of that attempt."""
        if self._last is not None:
            place = self._over[self._last] = self._places.pop()
            self._page.keep_over(place, self._last)
            self._last = None

    def _confirmed(self, token: Token) -> None:
        if token == self._last:
            self._last = None
        elif (place := self._over.pop(token, None)) is not None:
            self._page.drop_over(place)
            self._places.append(place)

    def _end_unfit(self, kind: str, hint: str) -> None:
        log.say("worker_unfit", pid=self._pid, kind=kind, hint=hint)
        self._ending = True

    def _attempt(self, job: work.Job, token: Token) -> work.Ack | work.Nack:
        reason = self._page.kill_reason(_SLOT, token)
        if reason is not None:
            return attempt.never_run(token, reason)
        plan = self._plans.get(job.kind)
        if plan is None:
            return attempt.unknown_kind(token, job.kind)
        deadline = time.monotonic() + job.time_limit_ms / 1000
        headers = job.headers or {}
        set_current_job(
            CurrentJob(job.id, job.attempt, token, job.kind, job.queue, headers, deadline, self._reporter)
        )
        self._reporter.begin(token)
        self._output.begin(token)
        if plan.is_isolated:
            answer = self._isolation.run(token, lambda: self._call(plan, token, job.payload))
        else:
            answer = self._call(plan, token, job.payload)
        self._output.end(token)
        self._reporter.end()
        set_current_job(None)
        return answer

    def _call(self, plan: Plan, token: Token, payload: bytes) -> work.Ack | work.Nack:
        context = self._surroundings.context()
        answer = context.run(
            attempt.run, plan.call, token, payload, self._guard, fits=plan.fits, faults=plan.faults
        )
        if plan.limit is not None:
            # A strike may have come before the limit was lifted.
            plan.limit.lift()
        said = self._output.end(token)
        return answer if said is None else answer._replace(output=said)

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
        if self._link.is_open:
            self._page.say_welcomed()

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
        if reason is None:
            return
        if self._guard.deputy is not None:
            self._guard.pass_on(reason)
        else:
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
                self._link.open((token,))
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
