"""The one seam for system calls on processes: who lives, who belongs to whom, and signals to them.

Signals go through `Pidfd` and nothing else. It can only be made for a process other than this one
and above pid 1, and a pid that was reused meanwhile is another process, which a pidfd never hits. So
pids 0, 1 and -1, this process and every process group are no possible targets.

Linux only. No trio: zygote and workers load this too.
"""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

POOL_NAME = "stoker-pool"
ZYGOTE_NAME = "stoker-zygote"
WORKER_NAME = "stoker-worker"
NURSERY_NAME = "stoker-nursery"
SENTINEL_NAME = "stoker-sentinel"
"""What these are called in the list of processes, where a sweep has to tell them from others."""

MARKER = "STOKER_WORKER"
"""Environment variable that holds the worker's nonce, in the worker and all that it starts."""

SOCKET = "STOKER_SOCKET"
"""Environment variable that holds the broker's socket, in a worker and all that it starts."""

STRIKE_SIGNAL = signal.SIGRTMIN + 7
"""The supervisor to a worker: look whether the attempt you run shall end."""

RECONNECT_SIGNAL = signal.SIGRTMIN + 8
"""The supervisor to a worker that may be deep in a handler: the broker is back."""

OOM_SCORE_ADJ = 500
"""Half of all memory counted on top: when it runs out, a worker is ended, and with it one job."""

_MEMBARRIER = {"x86_64": 324, "aarch64": 283, "riscv64": 283}.get(os.uname().machine)
"""Number of a system call that C libraries have no function for."""
_MEMBARRIER_GLOBAL_EXPEDITED = 1 << 1
_MEMBARRIER_REGISTER_GLOBAL_EXPEDITED = 1 << 2
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_GONE_STATES = "ZX"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_libc = ctypes.CDLL(None, use_errno=True)


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` says. `start_ticks` tells one use of a pid from the next."""

    pid: int
    state: str
    parent: int
    session: int
    threads: int
    start_ticks: int

    @property
    def is_stopped(self) -> bool:
        """Stopped by a signal. Being traced does not count: whoever traces it lets it run."""
        return self.state == "T"

    @property
    def has_ended(self) -> bool:
        """Nothing of it can run any more. A leader that ended before its threads still has some."""
        return self.state in _GONE_STATES and self.threads <= 1


def parse_stat(text: bytes) -> Stat:
    """The command may hold spaces and parentheses, so the fields are counted from its last one."""
    pid = int(text[: text.index(b" ")])
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(
        pid, fields[0].decode("ascii"), int(fields[1]), int(fields[3]), int(fields[17]), int(fields[19])
    )


def join_fence() -> bool:
    """From now on a `fence` of another process includes this one; False if this kernel cannot do that."""
    return _membarrier(_MEMBARRIER_REGISTER_GLOBAL_EXPEDITED)


def fence() -> bool:
    """Every process that joined has now made known what it wrote, and sees what this one wrote; see membarrier(2)."""
    return _membarrier(_MEMBARRIER_GLOBAL_EXPEDITED)


def _membarrier(command: int) -> bool:
    return _MEMBARRIER is not None and _libc.syscall(_MEMBARRIER, command, 0, 0) == 0


def stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    text = _read(f"/proc/{pid}/stat")
    return parse_stat(text) if text else None


def all_stats() -> Iterator[Stat]:
    """Every process of this PID namespace that could be read."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                yield found


def marker_of(pid: int) -> str:
    """The nonce in a process's environment as it began; empty if it has none or may not be read."""
    return variable_of(pid, MARKER)


def variable_of(pid: int, name: str) -> str:
    """A variable of a process's environment as it began; empty if it has none or may not be read."""
    prefix = f"{name}=".encode()
    for entry in _read(f"/proc/{pid}/environ").split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return ""


def resident_bytes(pid: int) -> int:
    """Resident memory, shared with others or not: quick, and never less than `private_bytes`; 0 if unknown."""
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE_BYTES if fields else 0


def private_bytes(pid: int) -> int:
    """Resident memory of its own alone; 0 if unknown. The kernel walks all of it, a millisecond for 100 MiB."""
    lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))


def name_of(pid: int) -> str:
    """What a process calls itself; empty if there is none."""
    return _read(f"/proc/{pid}/comm").decode("ascii", "replace").rstrip("\n")


def boot_id() -> str:
    """Names this boot of the host."""
    return _read("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def pid_namespace() -> int:
    """Inode number of this process's PID namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def identity(nonce: str) -> tuple[str, int, int, int, str]:
    """Who this process is, for good: boot id, PID namespace, pid, start ticks, nonce."""
    own = stat(os.getpid())
    assert own is not None, "a process can read its own stat"
    return (boot_id(), pid_namespace(), own.pid, own.start_ticks, nonce)


def open_descriptors() -> list[int]:
    """Descriptors of this process. (The one that reads the list is in it, and closed by then.)"""
    return sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Pidfd:
    """The right to signal one process, and no other that may get its pid later."""

    __slots__ = ("fd", "pid")

    def __init__(self, pid: int, fd: int | None = None) -> None:
        """`fd` is a pidfd that somebody else opened. ProcessLookupError if there is no such process."""
        if type(pid) is not int or pid <= 1 or pid == os.getpid():
            raise ValueError(f"pid {pid!r} is no target")
        self.pid = pid
        self.fd = os.pidfd_open(pid) if fd is None else fd

    def send(self, number: int) -> bool:
        """Send a signal; False if the process has ended."""
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            return False
        return True

    def has_exited(self, within_ms: int = 0) -> bool:
        """Whether the process has ended, or does within the time."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(within_ms))

    def close(self) -> None:
        """Give the descriptor back. Harmless twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def disregard(*numbers: int) -> None:
    """Let signals pass without effect. Unlike SIG_IGN this ends at exec: programs start with defaults."""
    for number in numbers:
        signal.signal(number, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Take a signal in."""


def set_name(name: str) -> None:
    """What `ps` and `top` show; at most 15 characters."""
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(name)


def go_first_when_memory_is_short() -> None:
    """Be the kernel's choice before broker and supervisor, with all programs that are started from here."""
    # What a service manager has set may be more. It cannot be refused but by a sandbox without /proc.
    with suppress(OSError), open("/proc/self/oom_score_adj", "r+", encoding="ascii") as file:
        if int(file.read()) < OOM_SCORE_ADJ:
            file.seek(0)
            file.write(str(OOM_SCORE_ADJ))


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children, instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def allow_no_new_privileges() -> None:
    """From here on nothing that this process starts gets more rights by being started: no set-user-id, no capabilities."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that made this process ends; at once if it has already.

    Forked children do not inherit it, and a change of uid clears it: call it after that.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # A moment later the kernel would have done it. Nobody is left to whom an error could be told.
        signal.raise_signal(signal.SIGKILL)


def live_without_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def flush_streams() -> None:
    """Write out what is in the buffers of stdout and stderr: before a fork, after which both would."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # Closed, broken or replaced by the app: then there is nothing of ours in it.
            continue


class MarkerSpace:
    """The place in this process's own starting environment that `marker_of` reads, to be written.

    Linux shows a process's environment as it was at exec, also for children that were forked without
    one. The zygote is started with a nonce; each worker writes another over its own copy, so
    everything it forks, however it hides its parents, carries the nonce. To be found before anything
    changes the variable, because after that the C library keeps it elsewhere.
    """

    def __init__(self) -> None:
        _libc.getenv.restype = ctypes.c_void_p
        self.own = os.environ.get(MARKER, "")
        """What this process was started with."""
        address: int | None = _libc.getenv(MARKER.encode())
        self._address = address
        self._size = len(ctypes.string_at(address)) if address else 0

    def write(self, nonce: str) -> None:
        """Mark this process. Without one at least as long before, only programs it starts are."""
        data = nonce.encode("ascii")
        if self._address and len(data) <= self._size:
            # What is left of a longer one becomes empty entries, which nobody reads.
            ctypes.memmove(self._address, data.ljust(self._size, b"\0"), self._size)
        os.environ[MARKER] = nonce


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _read(path: str) -> bytes:
    """Empty if the process is gone or its file may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(fd, 65536), b""))
    except OSError:
        return b""
    finally:
        os.close(fd)
