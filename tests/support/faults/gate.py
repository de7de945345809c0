"""A gate that every chosen system call of a program has to pass: noted, let through, answered or deadly.

The kernel asks before it carries out a call (`seccomp` with user notification), whichever thread makes
it, and waits for the answer. So the n-th call is the n-th of the whole program, which a tracer that
counts by thread cannot say; the call that a program is killed at is not carried out; and errors can be
chosen by file. Needs no tool, but a kernel from 5.6 on and root, who may look into the other process.

A `Handler` sees each call in the gate's own thread and says what becomes of it: `PASS`, `Fail(errno)`,
`Give(value)`, `KILL`, or `CARRY_OUT`: a sync done here, in the program's place, because only then is it
known when it was over.
"""

import ctypes
import errno
import os
import platform
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from typing import Any, NamedTuple, Self

from . import gate_entry

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "write": 1,
        "sendto": 44,
        "sendmsg": 46,
        "bind": 49,
        "listen": 50,
        "fsync": 74,
        "fdatasync": 75,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "link": 86,
        "unlink": 87,
        "chmod": 90,
        "fchmod": 91,
        "pwrite64": 18,
        "openat": 257,
        "unlinkat": 263,
        "fallocate": 285,
    },
    "aarch64": {
        "mkdirat": 34,
        "unlinkat": 35,
        "linkat": 37,
        "renameat": 38,
        "ftruncate": 46,
        "fallocate": 47,
        "fchmod": 52,
        "fchmodat": 53,
        "openat": 56,
        "write": 64,
        "pwrite64": 68,
        "fsync": 82,
        "fdatasync": 83,
        "bind": 200,
        "listen": 201,
        "sendto": 206,
        "sendmsg": 211,
    },
}
"""System calls by machine; those of the tables that a machine lacks do not exist there."""

CHANGES = frozenset(name for numbers in NUMBERS.values() for name in numbers)
"""All of them: whatever lets a program change files, or tell somebody something."""

BY_DESCRIPTOR = frozenset(
    {
        *("write", "sendto", "sendmsg", "fsync", "fdatasync", "ftruncate", "pwrite64", "fallocate"),
        *("fchmod", "bind", "listen"),
    }
)
"""Calls whose first argument is the descriptor of what they are about."""

BY_DIRECTORY = frozenset({"openat", "unlinkat", "renameat", "mkdirat", "linkat", "fchmodat"})
"""Calls whose second argument is the name."""

SYNCS = frozenset({"fsync", "fdatasync"})

_PIDFD_GETFD = 438
_RECEIVE = 0xC0502100
_SEND = 0xC0182101
_ASKED = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1

PATH_BYTES_MAX = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class Fail(NamedTuple):
    """The call is not carried out and fails with this errno."""

    errno: int


class Give(NamedTuple):
    """The call is not carried out and returns this."""

    value: int


class Verdict(NamedTuple):
    """One of the plain ones."""

    name: str


PASS = Verdict("pass")
KILL = Verdict("kill")
"""SIGKILL to the whole program, at once."""
CARRY_OUT = Verdict("carry out")

Ruling = Fail | Give | Verdict


class Call:
    """One system call that waits for its ruling."""

    def __init__(self, pid: int, name: str, arguments: Sequence[int], thread: int) -> None:
        self.pid = pid
        self.name = name
        self.arguments = arguments
        self.thread = thread

    def path(self) -> str:
        """What it is about: a file, by descriptor or by name; `socket:[...]` and the like for others."""
        if self.name in BY_DESCRIPTOR:
            try:
                return os.readlink(f"/proc/{self.pid}/fd/{self.arguments[0]}")
            except OSError:
                return ""
        at = self.arguments[1 if self.name in BY_DIRECTORY else 0]
        return os.fsdecode(self._text(at))

    def data(self) -> bytes:
        """The bytes of a write or a send."""
        return self.memory(self.arguments[1], self.arguments[2])

    def memory(self, address: int, length: int) -> bytes:
        """A piece of the program's memory."""
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), length, address)

    def _text(self, address: int) -> bytes:
        # Not past the end of a page, behind which there may be nothing.
        length = min(PATH_BYTES_MAX, 4096 - address % 4096)
        text, end, _ = self.memory(address, length).partition(b"\0")
        return text if end else text + self.memory(address + length, PATH_BYTES_MAX).partition(b"\0")[0]


Handler = Callable[[Call], Ruling]


class Gate:
    """A running program behind its gate. Use as a context manager; the program is killed at its end."""

    def __init__(
        self,
        command: Sequence[str],
        handler: Handler,
        *,
        log: Path,
        calls: Collection[str] = CHANGES,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Start it. The log takes its standard output and error."""
        numbers = NUMBERS[platform.machine()]
        self._names = {numbers[name]: name for name in calls if name in numbers}
        self._handler = handler
        self.carried_out: Callable[[Call], None] = lambda _: None
        """Called when a sync that was ruled to be carried out is over, before the program hears of it."""
        self.failure: BaseException | None = None
        """What the handler raised; the program was killed then."""
        entry = [sys.executable, "-S", gate_entry.__file__, ",".join(map(str, self._names))]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*entry, *command],
                cwd="/",
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.pid = self.process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._listener = self._take_listener()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()
        self.process.send_signal(signal.SIGCONT)

    def _take_listener(self) -> int:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.process.returncode = os.waitstatus_to_exitcode(status)
            raise OSError(errno.ENOSYS, "this kernel reports no system calls")
        listener = _libc.syscall(_PIDFD_GETFD, self._pidfd, gate_entry.LISTENER, 0)
        if listener < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return int(listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self.process.wait()
        self._thread.join()
        os.close(self._listener)
        os.close(self._pidfd)
        if self.failure is not None and exception[0] is None:
            raise self.failure

    def kill(self) -> None:
        """SIGKILL, also if the program has ended."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    # --- in the gate's own thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        ready = select.poll()
        ready.register(self._listener, select.POLLIN)
        while ready.poll()[0][1] & select.POLLIN:
            asked = bytearray(_ASKED.size)
            try:
                ioctl(self._listener, _RECEIVE, asked)
            except OSError:
                # It was killed while it asked.
                continue
            id, thread, _, number, _, _, *arguments = _ASKED.unpack(asked)
            if os.path.exists(f"/proc/{self.pid}/task/{thread}"):
                self._rule(id, Call(self.pid, self._names[number], arguments, thread))
            else:
                # Another program, which it started: importing trio runs `ldconfig`.
                self._answer(id, 0, 0, _CONTINUE)

    def _rule(self, id: int, call: Call) -> None:
        try:
            ruling = self._handler(call)
        except ProcessLookupError:
            # It was killed while its call was looked at.
            return
        except BaseException as error:  # noqa: BLE001  raised again where the gate is left
            self.failure, ruling = error, KILL
        if ruling is CARRY_OUT:
            threading.Thread(target=self._carry_out, args=(id, call), daemon=True).start()
        elif ruling is KILL:
            self.kill()
        elif ruling is PASS:
            self._answer(id, 0, 0, _CONTINUE)
        elif isinstance(ruling, Fail):
            self._answer(id, 0, -ruling.errno, 0)
        else:
            assert isinstance(ruling, Give)
            self._answer(id, ruling.value, 0, 0)

    def _carry_out(self, id: int, call: Call) -> None:
        assert call.name in SYNCS
        descriptor = _libc.syscall(_PIDFD_GETFD, self._pidfd, call.arguments[0], 0)
        if descriptor < 0:
            # It has been killed.
            return
        os.fsync(descriptor)
        os.close(descriptor)
        self.carried_out(call)
        self._answer(id, 0, 0, 0)

    def _answer(self, id: int, value: int, error: int, flags: int) -> None:
        answer: Any = _ANSWER.pack(id, value, error, flags)
        try:
            ioctl(self._listener, _SEND, answer)
        except OSError:
            # It was killed before it heard.
            return


def hindrance() -> str:
    """Why there can be no gate on this host; empty if there can."""
    if os.geteuid() != 0:
        return "looking into another process takes root"
    if platform.machine() not in NUMBERS:
        return f"system calls of {platform.machine()} are not numbered here"
    command = [sys.executable, "-S", gate_entry.__file__, "0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    process.kill()
    process.returncode = process.wait() if os.WIFSTOPPED(status) else 1
    return "" if os.WIFSTOPPED(status) else "this kernel reports no system calls (seccomp notification)"
