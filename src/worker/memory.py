"""Memory of a worker's jobs: a limit while one runs, and giving back what a big one took.

The limit is the kernel's (RLIMIT_DATA): what the process has mapped, private and writable, when the job
begins, and `memory_limit` on top of it. An allocation beyond that fails, which Python makes a
MemoryError and this file an attempt that ended as `memory`; nobody else on the host notices. It is set
before the contexts around the job are entered, and lifted before anything is said of how it ended,
because saying so takes memory as well.

What is counted: all that malloc, Python, threads and private mappings of the process take. Not counted:
files, also mapped ones and those of a file system in memory, shared mappings, and stacks as they grow
(those have limits of their own). RLIMIT_AS would count shared mappings too, but also every address that
a library only reserves, and many reserve a thousand times of what they use. A process that the job
starts inherits the limit and has it for itself: each is bounded, their sum is not.

What is known. A MemoryError that reaches the worker is `memory`, and so is an OSError that says the
kernel had none (ENOMEM). A library in C that ends the process at the limit leaves only a signal. So the
start page holds a mark, a little below the limit, in terms of peak resident memory, which the kernel
reports with a process's end: a death by signal at or above the mark is `memory`. That cannot see a
single huge allocation that was refused, nor memory that was mapped and never touched; such a death is
a `crash`. The peak is reset as the job begins; where the kernel will not, and where an earlier child
of this process had a higher one, there is no mark. A kernel that kills because the host is short of
memory counts as `memory` only if the job was at its own mark.
"""

import errno
import gc
import os
import resource
from collections.abc import Callable
from typing import Any, NoReturn

from ..config.durations import format_size, parse_size
from ..proto import limits

GREW_BYTES = 32 * limits.MIB
"""Growth of private memory that makes a job a big one. Collecting costs some milliseconds."""

QUICK_S = 0.001
"""No job that took less has filled GREW_BYTES with anything, so nothing is read after it."""

_M_ARENA_MAX = -8
"""Of mallopt(3)."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_RESIDENT, _SHARED, _DATA = 1, 2, 5
"""Fields of /proc/self/statm, in pages."""


def parse_limit(value: object) -> int:
    """Bytes of `memory_limit`, a number or a text such as `512MiB`. ValueError says what is wrong."""
    size = parse_size(value) if isinstance(value, str) else value
    if type(size) is not int or not limits.MEMORY_LIMIT_BYTES_MIN <= size <= limits.INTEGER_MAX:
        least = format_size(limits.MEMORY_LIMIT_BYTES_MIN)
        raise ValueError(f"must be bytes or a size such as '512MiB', at least {least}, not {value!r:.100}")
    return size


class MemoryLimit:
    """The limit of one kind. `mark` stores in the start page from which peak on a death is its fault."""

    def __init__(self, bytes_max: int, mark: Callable[[int], None]) -> None:
        _share_one_arena()
        self._bytes_max = bytes_max
        self._mark = mark
        self._before: tuple[int, int] | None = None

    def within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, to run under the limit."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                self._hold()
                return function(*args, **kwargs)
            except MemoryError as error:
                self.lift()
                if error.args:
                    raise
                self._blame(error)
            except OSError as error:
                self.lift()
                if error.errno != errno.ENOMEM:
                    raise
                self._blame(error)
            finally:
                self.lift()

        return call

    def lift(self) -> None:
        """Take the limit away, if it is there."""
        if self._before is not None:
            resource.setrlimit(resource.RLIMIT_DATA, self._before)
            self._before = None
            self._mark(0)

    def _hold(self) -> None:
        fields = _statm()
        self._set_mark(fields[_RESIDENT] * _PAGE_BYTES + self._bytes_max * 7 // 8)
        soft, hard = self._before = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = fields[_DATA] * _PAGE_BYTES + self._bytes_max
        # Never above what an administrator has set.
        bounds = [bound for bound in (wanted, soft, hard) if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))

    def _set_mark(self, peak_bytes: int) -> None:
        _reset_peak()
        known = max(_peak_bytes(resource.RUSAGE_SELF), _peak_bytes(resource.RUSAGE_CHILDREN))
        self._mark(peak_bytes if known < peak_bytes else 0)

    def _blame(self, error: BaseException) -> NoReturn:
        raise MemoryError(f"over its memory limit of {format_size(self._bytes_max)}") from error


class Trimmer:
    """Gives memory back to the kernel after a job that made the process grow."""

    def __init__(self, grew_bytes: int = GREW_BYTES) -> None:
        self._grew_bytes = grew_bytes
        self._before_bytes = private_bytes()

    def job_ended(self) -> bool:
        """Collect and trim if the process has grown since the last time; whether it had."""
        if private_bytes() - self._before_bytes < self._grew_bytes:
            return False
        gc.collect()
        _trim()
        # What is still there is in use, as a cache may be; it is not looked for after every job.
        self._before_bytes = private_bytes()
        return True


def private_bytes() -> int:
    """Resident memory of this process that is no file's. Pages still shared with the zygote are in it."""
    fields = _statm()
    return (fields[_RESIDENT] - fields[_SHARED]) * _PAGE_BYTES


def _statm() -> list[int]:
    fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return [int(field) for field in os.read(fd, 200).split()]
    finally:
        os.close(fd)


def _peak_bytes(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * limits.KIB


def _reset_peak() -> None:
    try:
        fd = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(fd, b"5")
    except OSError:
        return
    finally:
        os.close(fd)


def _trim() -> None:
    import ctypes

    # Only glibc has it; what other C libraries keep back is theirs.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _share_one_arena() -> None:
    """Have all threads allocate from one arena from now on, where the C library is glibc.

    It would give each an arena of its own, which stays mapped when what was in it is freed: the next job
    would begin with that, and could fill it on top of its limit.
    """
    import ctypes

    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)
