"""The sentinel: starts a program, sees its life and nothing of its streams, and alone says how it ended.

    program             -> started, or failed; for one that is over in a moment together with how it ended
    end, with a grace   TERM to its whole tree; KILL to what is left after the grace
    its end             what it leaves behind has LINGER_MS to end by itself, then KILL
    nobody is left      -> ended
    the worker is gone  KILL at once, and the sentinel ends too

One sentinel has one program at a time and is forked before it is needed (see `nursery`); the next program
finds it warm. It is a subreaper. So whatever the program starts, in whatever session, with whatever
environment, however often it forks: as long as it lives it is a descendant of the sentinel, and of no other
program's. That nothing is left is the kernel's word, which knows of no child any more, and not the outcome of
a search. There is a search only for whom to signal, by parentage; for KILL there may be a control group as well (`leaf`).

The program's own status is read through its pidfd before it is reaped. It cannot be taken by anybody else: the
sentinel runs no code but this. Should it be missing all the same, it is unknown, and never 0.

How a program is started is in `start`. What a killed sentinel leaves behind is the nursery's to end.
"""

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Sequence

from ...proto import limits
from .. import process, sweep
from ..process import Pidfd
from . import descendants
from .leaf import Leaf
from .program import Program
from .start import failure, start
from .talk import Channel, End, Ended, Message, Started

BRIEF_MS = 5
"""A program that is over within that time is told of once: half of what the worker has to do for it."""

LINGER_MS = 200
"""What a program leaves behind may still be writing down what it was told: a `tee`, a compressor."""

LOOK_MS_MIN = 2
LOOK_MS_MAX = 50
"""Between two looks for what KILL has not ended yet."""

SWEEP_MS = sweep.SWEEP_MS


class Life:
    """One program, from its start until nothing of it is left."""

    def __init__(self, child: Pidfd, leaf: Leaf | None) -> None:
        self.child = child
        self._leaf = leaf
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
        if self._leaf is not None:
            self.killed |= self._leaf.kill()
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

    def __init__(self, end: socket.socket, leaf: Leaf | None) -> None:
        self._channel = Channel(end)
        self._leaf = leaf
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)
        self._unsaid = list[Message]()
        """To be said together with what comes next, if that is soon."""
        self._is_wanted = self._is_clean = True

    def serve(self) -> bool:
        """One program after another, until the worker is gone or one would not die; whether nothing is left."""
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        process.disregard(signal.SIGCHLD)
        self._enter_leaf()
        while self._is_wanted:
            message = self._channel.next()
            if isinstance(message, Program):
                self._run(message, self._channel.take_descriptors())
            elif message is None and not self._receive():
                break
        if self._is_clean and self._leaf is not None:
            self._leaf.give_up()
        return self._is_clean

    def _receive(self) -> bool:
        """False if the worker is gone."""
        try:
            return self._channel.receive()
        except OSError:
            return False

    def _enter_leaf(self) -> None:
        if self._leaf is not None and not self._leaf.enter():
            # What is started from here on is killed one by one.
            self._leaf.give_up()
            self._leaf = None

    def _run(self, program: Program, streams: Sequence[int]) -> None:
        self._enter_leaf()
        try:
            pid = start(program, streams)
        except Exception as error:  # noqa: BLE001 - what Python makes of bad arguments has many names
            self._say(failure(program, error))
            return
        finally:
            for fd in streams:
                os.close(fd)
        life = Life(Pidfd(pid), self._leaf)
        self._unsaid.append(Started(pid))
        try:
            self._attend(life)
        finally:
            life.child.close()
        self._is_clean = life.is_alone
        self._is_wanted = self._is_wanted and life.is_alone
        self._say(life.result())

    def _attend(self, life: Life) -> None:
        while True:
            ready = {fd for fd, _ in self._poll.poll(BRIEF_MS if self._unsaid else life.poll_ms)}
            if self._wake_reader in ready:
                os.read(self._wake_reader, limits.READ_BYTES)
            if self._channel.socket.fileno() in ready and not self._hear(life):
                # Nobody is left to be told.
                self._poll.unregister(self._channel.socket)
                self._is_wanted = False
                life.kill_in(0)
            life.look()
            if life.advance():
                return
            if self._unsaid:
                self._say()

    def _hear(self, life: Life) -> bool:
        if not self._receive():
            return False
        while (message := self._channel.next()) is not None:
            if isinstance(message, End):
                life.end(message.grace_ms)
        return True

    def _say(self, *messages: Message) -> None:
        said, self._unsaid = [*self._unsaid, *messages], []
        try:
            self._channel.send(*said)
        except OSError:
            self._is_wanted = False


def be(end: socket.socket, leaf: Leaf | None) -> bool:
    """For a fresh fork of the nursery: be a sentinel until the worker is gone; whether it leaves nothing behind."""
    process.become_subreaper()
    process.set_name(process.SENTINEL_NAME)
    return Sentinel(end, leaf).serve()
