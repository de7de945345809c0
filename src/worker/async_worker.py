"""The worker for coroutine functions: one loop, many slots, jobs side by side.

    reader     what the broker sent: a job into a free slot, a confirmation frees one
    a job      token into the start page; is it to be ended already?; handler; answer
    signals    TERM, strike, reconnect: they set a flag and wake the loop, which does the rest

The loop is Trio's, or asyncio's for handlers that need it; anyio is what lets one program serve both.
A slot is free again when the broker has confirmed the answer of its attempt. Until then its token stays
on the start page, for the reason that `sync_worker` gives.

An attempt is ended by cancelling it: the supervisor writes its token and the reason into the start page
and sends the strike signal. A handler that goes on all the same is over its time, whatever it returns;
if it does not return, the supervisor kills the process, and the broker takes back the others uncharged.
The same if a handler never lets the loop turn: that also keeps all its neighbours waiting. What a
handler started as processes is its own to end, on cancellation too: nobody knows whose they are. What it ran by
`commands.run`, or what a job of the kind `command` is, ends before the attempt does (see `commands.sentinel`).

TERM: it says hello anew with no slots, so that nothing more comes and what has not begun goes back; then
it waits for the jobs that run. Whoever sent the signal kills it when it takes too long.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import anyio
from anyio.abc import TaskGroup

from ..proto import limits, work
from ..proto.model import COMMAND
from . import async_attempt, attempt, log
from .app import App
from .async_attempt import Strike
from .commands.command import Rules
from .commands.files import OutputDirectory, peer_pid
from .commands.kind import attempt_of
from .commands.live import LiveOutput
from .commands.run import of_this_process
from .context import CurrentJob, current_job, set_task_job
from .control import Start
from .flavour import Flavour
from .link import HELLO_MS, Answer, HelloRefusedError, Link
from .output import JobOutput
from .process import RECONNECT_SIGNAL, STRIKE_SIGNAL, disregard
from .reporter import Reporter
from .startpage import StartPage, Token

BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1000

LEAVE_MS = 5000
"""How long a worker that ends waits for the broker to confirm what it was told."""


class AsyncWorker:
    """See the module. Everything it needs was made before the fork or is given here."""

    def __init__(
        self,
        app: App,
        flavour: Flavour,
        link: Link,
        page: StartPage,
        output: JobOutput,
        start: Start,
    ) -> None:
        self._flavour = flavour
        self._output = output
        self._programs = None if start.commands is None else Rules(start.commands)
        self._directory = OutputDirectory(start.data, start.low_water_bytes)
        self._handlers = app.handlers
        self._hooks = app.hooks
        self._link = link
        link.confirmed = self._confirmed
        link.streamed = self._follow
        # Whoever waits for the descriptor would not hear of its end otherwise.
        link.closing = anyio.notify_closing
        self._page = page
        self._reporters = [Reporter(link.say, page, slot) for slot in range(page.slots)]
        self._free = list(range(page.slots))
        self._running: dict[Token, tuple[int, Strike]] = {}
        self._answered: dict[Token, int] = {}
        """Slots of attempts whose answer is not confirmed."""
        self._kills: dict[Token, str] = {}
        self._live: dict[Token, LiveOutput] = {}
        """What programs of running attempts say."""
        self._pid = os.getpid()
        self._signals: set[int] = set()
        self._ending = False
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._flushing = False
        self._status = 0
        self._tasks: TaskGroup
        self._waiting: anyio.CancelScope

    @property
    def slots(self) -> int:
        """How many jobs it takes at once: none any more when it is ending."""
        return 0 if self._ending else self._page.slots

    @property
    def prefetch(self) -> int:
        """None: it is handed as many as it can run."""
        return 0

    def install_signals(self) -> None:
        """Before anything of the app runs in this process."""
        disregard(signal.SIGINT)
        for number in (signal.SIGTERM, STRIKE_SIGNAL, RECONNECT_SIGNAL):
            signal.signal(number, self._on_signal)

    def run(self) -> int:
        """Work until TERM; the exit status."""
        anyio.run(self._run, backend=str(self._flavour))
        return self._status

    async def _run(self) -> None:
        if self._programs is not None:
            of_this_process().warm()
        self._page.say_came_up()
        self._waiting = anyio.CancelScope()
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._obey_signals)
            try:
                await self._serve()
                with anyio.move_on_after(LEAVE_MS / 1000):
                    await self._settle()
            except HelloRefusedError as error:
                log.say("worker_refused", pid=self._pid, error=error)
                self._status = 1
            self._tasks.cancel_scope.cancel()
        self._link.close()
        of_this_process().close()

    # --- the connection ------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Take in what the broker sends until it is time to end and nothing runs any more."""
        while not (self._ending and not self._running):
            await self._receive()

    async def _settle(self) -> None:
        """See that every answer has arrived."""
        while self._link.owes:
            await self._receive()

    async def _receive(self) -> None:
        """Wait for something to come and act on it; or for a connection, if there is none."""
        link = self._link
        if not link.is_open:
            await self._connect()
        elif await self._wait():
            link.receive()
            self._start_jobs()

    async def _wait(self) -> bool:
        """Whether the connection has something to read. False as well when anything else has changed."""
        with anyio.CancelScope() as self._waiting, suppress(anyio.ClosedResourceError):
            await anyio.wait_readable(self._link)
            return True
        return False

    async def _connect(self) -> None:
        backoff_ms = BACKOFF_MS_MIN
        while not await self._open():
            if self._ending and not (self._running or self._link.owes):
                return
            await anyio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)
        self._page.say_welcomed()
        self._directory.broker_pid = peer_pid(self._link.fileno())
        for live in self._live.values():
            live.connected()
        self._start_jobs()

    async def _open(self) -> bool:
        link = self._link
        for live in self._live.values():
            live.disconnected()
        if link.begin(self._running):
            with anyio.move_on_after(HELLO_MS / 1000), suppress(anyio.ClosedResourceError):
                while link.is_open and not link.is_welcomed:
                    await anyio.wait_readable(link)
                    link.receive()
        return link.finish()

    def _answer(self, answer: Answer) -> None:
        self._link.answer(answer)
        self._flush_soon()

    def _ask(self, message: work.Output, answered: Callable[[bool], None]) -> None:
        self._link.ask(message, lambda fields: answered(fields is not None and fields[0] is True))
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._link.unsent and not self._flushing:
            self._flushing = True
            self._tasks.start_soon(self._flush)

    async def _flush(self) -> None:
        """The socket took less than there is: go on when it has room."""
        link = self._link
        with suppress(anyio.ClosedResourceError):
            while link.is_open and link.unsent:
                await anyio.wait_writable(link)
                link.flush()
        self._flushing = False

    # --- jobs ------------------------------------------------------------------------------------------

    def _start_jobs(self) -> None:
        jobs = self._link.jobs
        while jobs and self._free and not self._ending:
            job, slot = jobs.popleft(), self._free.pop()
            token: Token = (job.token[0], job.token[1])
            self._page.start(slot, token)
            self._running[token] = (slot, Strike())
            if self._programs is not None and job.kind == COMMAND:
                self._live[token] = LiveOutput(token, job.follow, self._ask, self._call_later)
            self._tasks.start_soon(self._run_job, job, token)

    async def _run_job(self, job: work.Job, token: Token) -> None:
        slot, strike = self._running[token]
        answer = await self._attempt(job, token, strike)
        if os.getpid() != self._pid:
            # A handler forked, and this is the child.
            os._exit(0)
        del self._running[token]
        self._live.pop(token, None)
        self._answered[token] = slot
        self._answer(answer)
        self._page.count_finished()
        if self._ending:
            self._change()

    async def _attempt(self, job: work.Job, token: Token, strike: Strike) -> Answer:
        if token in self._kills:
            return attempt.never_run(token, self._kills[token])
        handler = self._handlers.get(job.kind)
        if handler is None:
            return attempt.unknown_kind(token, job.kind)
        deadline = time.monotonic() + job.time_limit_ms / 1000
        reporter, headers = self._reporters[self._running[token][0]], job.headers or {}
        set_task_job(CurrentJob(job.id, job.attempt, token, job.kind, job.queue, headers, deadline, reporter))
        reporter.begin(token)
        if self._programs is not None and job.kind == COMMAND:
            open_files = partial(self._directory.open, job.number, job.attempt)
            done = await attempt_of(token, job.payload, strike, self._programs, self._live[token], open_files)
            reporter.end()
            return done
        self._output.begin(token)
        function = self._hooks.within_task(handler.function, current_job)
        answer = await async_attempt.run(
            function,
            token,
            job.payload,
            strike,
            flavour=self._flavour,
            fits=handler.fits,
            faults=handler.faults,
        )
        reporter.end()
        said = self._output.end(token)
        return answer if said is None else answer._replace(output=said)

    def _confirmed(self, token: Token) -> None:
        """The broker has the answer of an attempt: nothing of it is left."""
        slot = self._answered.pop(token, None)
        if slot is not None:
            self._page.clear(slot)
            self._free.append(slot)

    # --- followers -----------------------------------------------------------------------------------------

    def _follow(self, token: Token, policy: str) -> None:
        """Somebody follows an attempt, which may not have begun."""
        live, jobs = self._live.get(token), self._link.jobs
        if live is not None:
            live.follow(policy)
        for at, job in enumerate(jobs):
            if (job.token[0], job.token[1]) == token:
                jobs[at] = job._replace(follow=policy)

    def _call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self._tasks.start_soon(_after, delay_s, call)

    # --- signals -----------------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.add(number)
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            return

    async def _obey_signals(self) -> None:
        while True:
            await anyio.wait_readable(self._wake_reader)
            _drain(self._wake_reader)
            numbers, self._signals = self._signals, set()
            if STRIKE_SIGNAL in numbers:
                self._strike()
            if signal.SIGTERM in numbers and not self._ending:
                self._ending = True
                # With the next hello it has no slots.
                self._link.close()

    def _strike(self) -> None:
        """End what the start page says is to be ended."""
        kills = list(self._page.kills())
        self._kills = {token: reason for token, reason, _ in kills}
        for token, reason, within_ms in kills:
            if token in self._running:
                self._running[token][1].fall(reason, within_ms)

    def _change(self) -> None:
        """Have the reader look at more than what comes from the broker."""
        self._waiting.cancel()


async def _after(delay_s: float, call: Callable[[], None]) -> None:
    await anyio.sleep(delay_s)
    call()


def _drain(fd: int) -> None:
    try:
        os.read(fd, limits.READ_BYTES)
    except BlockingIOError:
        return
