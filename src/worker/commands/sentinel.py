"""The sentinel: starts a program, sees its life and nothing of its streams, and alone says how it ended.

    program             -> started, or failed
    end, with a grace   TERM to its whole tree; KILL to what is left after the grace
    its end             what it leaves behind has LINGER_MS to end by itself, then KILL
    nobody is left      -> ended
    the worker is gone  KILL at once, and the sentinel ends too

One sentinel has one program at a time and is forked before it is needed (see `nursery`); the next program
finds it warm. It is a subreaper. So whatever the program starts, in whatever session, with whatever
environment, however often it forks: as long as it lives it is a descendant of the sentinel, and of no other
program's. That nothing is left is the kernel's word, which knows of no child any more, and not the outcome of
a search. There is a search only for whom to signal, by parentage.

The program's own status is read through its pidfd before it is reaped. It cannot be taken by anybody else: the
sentinel runs no code but this. Should it be missing all the same, it is unknown, and never 0.

The program gets three descriptors, default signals, a session of its own, no new privileges (set for the
sentinel once, and inherited), its directory, umask, environment. Started by `vfork`, which costs half of a fork;
only limits have to be set in between, so a program with limits is started by a fork, and then also dies with
its sentinel by the kernel's doing. Without limits, what a killed sentinel leaves behind is the nursery's to end.
"""

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

from ...proto import limits
from .. import process, sweep
from ..process import Pidfd
from . import descendants
from .program import LIMITS, Program
from .talk import STREAMS, Channel, End, Ended, Failed, Started

LINGER_MS = 200
"""What a program leaves behind may still be writing down what it was told: a `tee`, a compressor."""

LOOK_MS_MIN = 2
LOOK_MS_MAX = 50
"""Between two looks for what KILL has not ended yet."""

SWEEP_MS = sweep.SWEEP_MS

SHOWN_BYTES = 200
"""Of a name that could not be run."""


class Life:
    """One program, from its start until nothing of it is left."""

    def __init__(self, child: Pidfd) -> None:
        self.child = child
        self.has_ended = False
        """The program itself."""
        self.is_alone = False
        """The sentinel has no child any more."""
        self.status: int | None = None
        self.signal: int | None = None
        self.memory_peak_bytes = 0
        self.cpu_s = 0.0
        self.killed = set[int]()
        self.kill_at_s: float | None = None
        """When everything that still lives is killed."""
        self.give_up_at_s: float | None = None
        self._look_ms = LOOK_MS_MIN

    def kill_in(self, delay_ms: int) -> None:
        """Kill what is left after so long, if that is not sooner already."""
        at_s = time.monotonic() + delay_ms / limits.SECOND_MS
        if self.kill_at_s is None or at_s < self.kill_at_s:
            self.kill_at_s = at_s

    @property
    def poll_ms(self) -> int | None:
        """Until something is to be done, should nothing happen."""
        if self.kill_at_s is None:
            return None
        return max(0, round((self.kill_at_s - time.monotonic()) * limits.SECOND_MS + 0.5))

    def advance(self) -> bool:
        """Do what is due; whether this life is over, or given up."""
        if self.has_ended and self.is_alone:
            return True
        if self.has_ended:
            self.kill_in(LINGER_MS)
        now_s = time.monotonic()
        if self.kill_at_s is None or now_s < self.kill_at_s:
            return False
        if self.give_up_at_s is None:
            self.give_up_at_s = now_s + SWEEP_MS / limits.SECOND_MS
        elif now_s > self.give_up_at_s:
            return True
        self.killed |= descendants.kill(self.look)
        self.kill_at_s = time.monotonic() + self._look_ms / limits.SECOND_MS
        self._look_ms = min(2 * self._look_ms, LOOK_MS_MAX)
        return False

    def look(self) -> None:
        """Take in whoever has ended."""
        if not self.has_ended:
            self._look_at_program()
        try:
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == self.child.pid and not self.has_ended:
                    self._look_at_program()
                else:
                    self._reap(found.si_pid)
        except ChildProcessError:
            self.is_alone = True

    def _look_at_program(self) -> None:
        try:
            found = os.waitid(os.P_PIDFD, self.child.fd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # Somebody has taken it, which nobody can. Its status is unknown then, and that is a failure.
            self.has_ended = True
            return
        if found is None:
            return
        if found.si_code == os.CLD_EXITED:
            self.status = found.si_status
        else:
            self.signal = found.si_status
        self.has_ended = True
        self._reap(self.child.pid)

    def _reap(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):
            _, _, usage = os.wait4(pid, 0)
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.memory_peak_bytes = max(self.memory_peak_bytes, usage.ru_maxrss * limits.KIB)

    def end(self, grace_ms: int) -> None:
        """Somebody wants it ended."""
        if self.kill_at_s is None:
            for each in descendants.below(os.getpid()):
                descendants.end(each)
        self.kill_in(grace_ms)

    def result(self) -> Ended:
        """What became of it."""
        left_count = len(self.killed - {self.child.pid})
        numbers = (self.memory_peak_bytes, round(self.cpu_s * limits.SECOND_MS), left_count)
        return Ended(self.status, self.signal, *numbers, self.is_alone)


class Sentinel:
    """Serves one worker through a socket."""

    def __init__(self, end: socket.socket) -> None:
        self._channel = Channel(end)
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_wanted = self._is_clean = True

    def serve(self) -> bool:
        """One program after another, until the worker is gone or one would not die; whether nothing is left."""
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        process.disregard(signal.SIGCHLD)
        while self._is_wanted:
            message = self._channel.next()
            if isinstance(message, Program):
                self._run(message, self._channel.take_descriptors())
            elif message is None and not self._receive():
                break
        return self._is_clean

    def _receive(self) -> bool:
        """False if the worker is gone."""
        try:
            return self._channel.receive()
        except OSError:
            return False

    def _run(self, program: Program, streams: Sequence[int]) -> None:
        try:
            pid = _start(program, streams)
        except Exception as error:  # noqa: BLE001 - what Python makes of bad arguments has many names
            self._say(_failure(program, error))
            return
        finally:
            for fd in streams:
                os.close(fd)
        life = Life(Pidfd(pid))
        try:
            self._say(Started(pid))
            self._attend(life)
        finally:
            life.child.close()
        self._is_clean = life.is_alone
        self._is_wanted = self._is_wanted and life.is_alone
        self._say(life.result())

    def _attend(self, life: Life) -> None:
        poll = select.poll()
        poll.register(self._channel.socket, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        while True:
            life.look()
            if life.advance():
                return
            ready = {fd for fd, _ in poll.poll(life.poll_ms)}
            if self._wake_reader in ready:
                os.read(self._wake_reader, limits.READ_BYTES)
            if self._channel.socket.fileno() in ready and not self._hear(life):
                # Nobody is left to be told.
                poll.unregister(self._channel.socket)
                self._is_wanted = False
                life.kill_in(0)

    def _hear(self, life: Life) -> bool:
        if not self._receive():
            return False
        while (message := self._channel.next()) is not None:
            if isinstance(message, End):
                life.end(message.grace_ms)
        return True

    def _say(self, message: Started | Failed | Ended) -> None:
        try:
            self._channel.send(message)
        except OSError:
            self._is_wanted = False


def be(end: socket.socket) -> bool:
    """For a fresh fork of the nursery: be a sentinel until the worker is gone; whether it leaves nothing behind."""
    process.become_subreaper()
    process.set_name(process.SENTINEL_NAME)
    return Sentinel(end).serve()


def _start(program: Program, streams: Sequence[int]) -> int:
    if len(streams) != STREAMS:
        # Some were lost on the way, as happens to a process that may have no more.
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for fd in streams:
        os.set_blocking(fd, True)
    started = subprocess.Popen(
        list(program.argv),
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        cwd=program.directory,
        env=dict(program.env),
        umask=program.umask,
        start_new_session=True,
        preexec_fn=_limiter(program) if program.limits else None,  # noqa: PLW1509 - no threads here
    )
    # Its end is taken in here, and not by the object.
    started.returncode = 0
    if program.oom_score_adj is not None:
        _write_oom_score_adj(started.pid, program.oom_score_adj)
    return started.pid


def _limiter(program: Program) -> Callable[[], None]:
    kept = [(getattr(resource, LIMITS[name]), value) for name, value in program.limits.items()]
    parent = os.getpid()

    def limit() -> None:
        # First: with next to no memory or descriptors nothing else can be done any more.
        process.die_with_parent(parent)
        for kind, value in kept:
            _, hard = resource.getrlimit(kind)
            # XCPU says what was wrong; KILL, a second later, does not.
            most = value + 1 if kind == resource.RLIMIT_CPU else value
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (min(value, most), most))

    return limit


def _write_oom_score_adj(pid: int, value: int) -> None:
    # It may have ended already; and less than it has it may not be given.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(value))


def _failure(program: Program, error: Exception) -> Failed:
    number = error.errno or 0 if isinstance(error, OSError) else 0
    item = program.argv[0]
    if isinstance(error, OSError) and error.filename is not None:
        item = os.fsencode(error.filename)
    name = errno.errorcode.get(number, type(error).__name__)
    what = os.strerror(number) if number else str(error)
    if number == errno.ENOENT and b"/" in item and os.path.exists(os.path.join(program.directory, item)):
        what += ": the interpreter of"
    return Failed(number, f"{name}: {what}: {item[:SHOWN_BYTES].decode(errors='backslashreplace')}")
