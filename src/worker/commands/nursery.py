"""The nursery: forks sentinels for one worker, as many as it asks for.

Started by exec as `python -m stoker.worker.commands.nursery FD`, FD being its end of a socketpair. It has one
thread and next to nothing in memory, so that a fork of it is quick and harmless, whatever runs in the worker.
A packet brings the socket over which a new sentinel is to serve.

It is a subreaper as well: if a sentinel is killed, what it looked after comes down to here, and is killed. Until
then the nursery holds the socket of that sentinel open, so that to the worker its end is proof, as an answer of
the sentinel would have been. When the worker is gone its sentinels end what they have and then themselves; the
nursery waits for that.
"""

import contextlib
import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import NamedTuple

from ...proto import limits
from .. import process, sweep
from . import descendants, leaf, sentinel, talk
from .leaf import Leaf, Leaves
from .talk import Channel, Failed

LOOK_MS_MIN = 20
LOOK_MS_MAX = 1000
"""Between two looks while there is somebody who is no sentinel. It may hang in the kernel for hours."""

DESCRIPTORS = 1024
"""What a program may have open, as everywhere, unless it asks for more of what the hard limit gives."""

LAST_MS = 2 * sweep.SWEEP_MS
"""How long sentinels may take to end when the worker is gone."""


class Charge(NamedTuple):
    """What the nursery holds for one sentinel."""

    end: socket.socket
    """That over which it serves."""
    leaf: Leaf | None
    """The group that it and its program are in."""

    def close(self) -> None:
        """Nothing of it is left, or it is another sentinel's."""
        self.end.close()
        if self.leaf is not None:
            self.leaf.let_go()


class Nursery:
    """Sentinels and the poll loop."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._leaves = Leaves(leaf.own_trunk())
        self._sentinels: dict[int, Charge] = {}
        """By pid."""
        self._lost: list[Charge] = []
        """For sentinels that were killed, and of whose programs something may be left."""
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._spare = _spare()
        """In the place of the next socket, for which there may be no other."""
        self._has_strangers = False
        """There are children that are no sentinels."""
        self._look_ms = LOOK_MS_MIN
        self._give_up_at_s = 0.0

    def run(self) -> None:
        """Until the worker is gone and all sentinels have ended."""
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        process.disregard(signal.SIGCHLD)
        poll = select.poll()
        poll.register(self._wake_reader, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        end_s: float | None = None
        while end_s is None or (time.monotonic() < end_s and (self._sentinels or self._has_strangers)):
            is_waiting = self._has_strangers or end_s is not None
            ready = {fd for fd, _ in poll.poll(self._look_ms if is_waiting else None)}
            if self._wake_reader in ready:
                os.read(self._wake_reader, limits.READ_BYTES)
            self._reap()
            if self._has_strangers:
                self._end_strangers()
            if self._socket.fileno() in ready and not self._fork():
                poll.unregister(self._socket)
                end_s = time.monotonic() + LAST_MS / limits.SECOND_MS

    def _fork(self) -> bool:
        """A sentinel more; False if the worker is gone."""
        if self._spare >= 0:
            os.close(self._spare)
        try:
            data, descriptors = talk.receive(self._socket, 1)
        except OSError:
            return False
        self._spare = _spare()
        for fd in descriptors:
            self._fork_for(socket.socket(fileno=fd))
        return bool(data)

    def _fork_for(self, end: socket.socket) -> None:
        try:
            if self._spare < 0:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            charge = Charge(end, self._leaves.fresh())
            pid = self._forked(charge)
        except OSError as error:
            # Descriptors, processes or memory are short. Whoever waits for this sentinel is told so.
            number = error.errno or errno.EAGAIN
            with end, contextlib.suppress(OSError):
                Channel(end).send(Failed(number, f"{errno.errorcode[number]}: {error.strerror}: a sentinel"))
            return
        if pid == 0:
            self._be_sentinel(charge)
        self._sentinels[pid] = charge

    def _forked(self, charge: Charge) -> int:
        try:
            return os.fork()
        except OSError:
            if charge.leaf is not None:
                charge.leaf.remove()
                charge.leaf.let_go()
            raise

    def _be_sentinel(self, charge: Charge) -> None:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            self._socket.close()
            for other in (*self._sentinels.values(), *self._lost):
                other.close()
            for fd in (self._wake_reader, self._wake_writer, self._spare):
                os.close(fd)
            _lower_descriptors()
            status = 0 if sentinel.be(charge.end, charge.leaf) else 1
        finally:
            os._exit(status)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                charge = self._sentinels.pop(pid, None)
                if charge is not None and status == 0:
                    charge.close()
                elif charge is not None:
                    if charge.leaf is not None:
                        charge.leaf.kill()
                    self._lost.append(charge)
                    self._has_strangers = True
                    self._look_ms = LOOK_MS_MIN
                    self._give_up_at_s = time.monotonic() + sweep.SWEEP_MS / limits.SECOND_MS

    def _end_strangers(self) -> None:
        """Kill what came down from sentinels that were killed."""
        descendants.kill(self._reap, self._sentinels)
        self._has_strangers = bool(descendants.children() - self._sentinels.keys())
        self._look_ms = min(2 * self._look_ms, LOOK_MS_MAX)
        if not self._has_strangers or time.monotonic() > self._give_up_at_s:
            for charge in self._lost:
                if charge.leaf is not None:
                    charge.leaf.remove()
                charge.close()
            self._lost.clear()


def _spare() -> int:
    """-1 if there can be none."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _lower_descriptors() -> None:
    # Many may be open in a worker; a program that uses `select` must not get a number above this.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))


def _take_defaults() -> None:
    """Whoever started the worker may have ignored or blocked signals, and a program would inherit that."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_descriptors() -> None:
    """Whatever is open here ends at exec, but for the three that a program gets others in place of."""
    for fd in process.open_descriptors():
        if fd >= talk.STREAMS:
            os.set_inheritable(fd, False)


def main() -> None:
    """See the module."""
    end = socket.socket(fileno=int(sys.argv[1]))
    _keep_descriptors()
    process.become_subreaper()
    process.allow_no_new_privileges()
    process.set_name(process.NURSERY_NAME)
    _take_defaults()
    # What a terminal or somebody who signals by name sends is not for it: it ends with the worker.
    process.disregard(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    os.chdir("/")
    gc.collect()
    gc.freeze()
    Nursery(end).run()


if __name__ == "__main__":
    main()
