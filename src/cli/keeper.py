"""Keeps two programs running and ends them in order: the pool first, drained, then the broker.

    running ──TERM or INT──► TERM to the pool ──pool has ended──► TERM to the broker ──► ended
       │ a program ends: it is started again after a pause (`restarts`)
       └ a program ends for good: as TERM, and its exit code is the keeper's

The pool is started when the broker has said that it is ready, and never before: where the broker cannot
have the socket, another one is listening there, and the pool would work for that one. The broker says it
by a signal, which names its sender; a real-time one, because those do not merge with others of theirs.

A broker that ends before the pool has is started again, also while everything is being ended: a service
manager tells every process at once, and the pool has yet to say how its last jobs ended.

HUP is passed on to the pool, which loads its code anew; but that of a terminal which goes away is a TERM.

A further TERM or INT is passed on to whichever is being ended; copies of one within a moment count
once, because a terminal and a service manager may both send it. One thread, no handlers: signals
are blocked and fetched, so none can come between a check and a wait. Each program has a process
group of its own, so Ctrl-C reaches it only through the keeper. Everything that ends is reaped, also
orphans that a PID 1 inherits.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType

from ..config.exits import Exit
from ..worker.terminal import Terminal
from .output import say
from .restarts import Restarts, described

SAME_SIGNAL_S = 0.3
"""Signals closer together are copies of one request: those come within milliseconds, and a person who means
it twice takes longer. A little more than a pool counts by, so that what is passed on as a second one is
taken as one."""
READY_SIGNAL = signal.SIGRTMIN
"""What a broker sends its keeper when it is listening."""
_STOP = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_WATCHED = _STOP | {signal.SIGCHLD, READY_SIGNAL}
_RESET = (signal.SIGPIPE, signal.SIGQUIT, signal.SIGCHLD, *_STOP)
"""What a shell may have made its children ignore."""


class Program:
    """One program: its command, its process while it has one, and when it is to be started."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.pid = 0
        self.start_at: float | None = 0.0
        """Monotonic instant; None while it runs or is not to run."""
        self.is_ready = False
        """It runs and has said so."""
        self._command = tuple(command)
        self._restarts = Restarts()
        self._started_at = 0.0

    def start(self, now: float) -> None:
        """Spawn it, with nothing inherited but stdout and stderr."""
        self.pid = os.posix_spawn(
            self._command[0],
            self._command,
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setpgroup=0,
            setsigmask=(),
            setsigdef=_RESET,
        )
        self.start_at = None
        self._started_at = now

    def terminate(self) -> None:
        """Ask it to end. Its pid is ours until we reap it, so it cannot be anybody else's."""
        self.start_at = None
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)

    def hang_up(self) -> None:
        """Pass a HUP on, if it runs."""
        if self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def ended(self, code: int, now: float) -> float | None:
        """It has been reaped: how long to wait before the next start, None for never."""
        self.pid, self.is_ready = 0, False
        pause_s = self._restarts.pause_after(code, now - self._started_at)
        self.start_at = None if pause_s is None else now + pause_s
        return pause_s


class Keeper:
    """See the module."""

    def __init__(
        self,
        pool: Program,
        broker: Program,
        *,
        greeting: str = "",
        advice: Mapping[int, str] = MappingProxyType({}),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`greeting` is said once, when the broker is ready; `advice` by exit code, when one ends for good."""
        self._pool = pool
        self._broker = broker
        self._greeting = greeting
        self._advice = advice
        self._clock = clock
        self._code: int | None = None
        """Set when everything is to end: the exit code."""
        self._asked_at = -SAME_SIGNAL_S
        self._terminal = Terminal()

    def run(self) -> int:
        """Until both have ended; the exit code."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            while self._code is None or self._pool.pid or self._broker.pid:
                self._start_due()
                self._fetch_signal()
                self._reap()
            return self._code
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start_due(self) -> None:
        now = self._clock()
        for program in self._startable():
            if program.start_at is not None and program.start_at <= now:
                program.start(now)

    def _startable(self) -> tuple[Program, ...]:
        return (self._broker, self._pool) if self._broker.is_ready else (self._broker,)

    def _fetch_signal(self) -> None:
        starts = [program.start_at for program in self._startable() if program.start_at is not None]
        if starts:
            info = signal.sigtimedwait(_WATCHED, max(0.0, min(starts) - self._clock()))
        else:
            info = signal.sigwaitinfo(_WATCHED)
        if info is None:
            return
        if info.si_signo == signal.SIGHUP and not self._terminal.has_hung_up():
            self._pool.hang_up()
        elif info.si_signo in _STOP:
            self._asked_to_stop()
        elif info.si_signo == READY_SIGNAL and info.si_pid == self._broker.pid:
            self._broker_is_ready()

    def _broker_is_ready(self) -> None:
        self._broker.is_ready = True
        if self._greeting and self._code is None:
            say(self._greeting)
            self._greeting = ""

    def _asked_to_stop(self) -> None:
        now = self._clock()
        if now - self._asked_at >= SAME_SIGNAL_S:
            self._asked_at = now
            if self._code is None:
                say("stoker: stopping; running jobs are finished first (again to hurry)")
            elif self._pool.pid:
                say("stoker: hurrying; jobs that still run are ended, and stay in the queue")
            else:
                say("stoker: the broker is ending already")
            self._stop(Exit.OK)

    def _stop(self, code: int) -> None:
        if self._code is None:
            self._code = code
        (self._pool if self._pool.pid else self._broker).terminate()
        self._pool.start_at = None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for program in (self._pool, self._broker):
                if pid == program.pid:
                    self._ended(program, os.waitstatus_to_exitcode(status))

    def _ended(self, program: Program, code: int) -> None:
        pause_s = program.ended(code, self._clock())
        if self._code is not None:
            self._ended_while_stopping(program, code, pause_s)
        elif pause_s is None:
            advice = self._advice.get(code, "a restart would not help")
            say(f"stoker: the {program.name} {described(code)}; {advice}")
            self._stop(code)
        else:
            when = f"in {pause_s:g} s" if pause_s else "at once"
            say(f"stoker: the {program.name} {described(code)}; starting it again {when}")

    def _ended_while_stopping(self, program: Program, code: int, pause_s: float | None) -> None:
        if self._pool.pid and pause_s is not None:
            say(f"stoker: the broker {described(code)}; starting it again, the pool has not finished")
            return
        program.start_at = None
        if code:
            say(f"stoker: the {program.name} {described(code)}")
        if program is self._pool:
            self._broker.terminate()


def command(verb: str, *arguments: str) -> list[str]:
    """The command line of a `stoker` that ends with this process.

    `-P`: a file in the current directory must not take the place of a module of stoker's.
    """
    return [sys.executable, "-P", "-m", "stoker.cli.main", verb, f"--parent={os.getpid()}", *arguments]
