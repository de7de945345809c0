"""How a sentinel starts a program: `start` gives a pid, or says why there is none.

A program gets three descriptors and no others, default signals, an empty mask, a session of its own, its directory,
umask and environment. No new privileges is what its sentinel has, and it inherits.

By `posix_spawn`, which costs half of what `subprocess` does, and that half of a fork. It sets neither directory nor
umask, so the sentinel takes them on itself while it starts; it has one thread and nothing else to do. Only limits
have to be set in between: a program with limits is forked, and then also dies with its sentinel by the kernel's doing.
"""

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from .. import process
from .program import LIMITS, Program
from .talk import STREAMS, Failed

_HOME = b"/"
"""Where a sentinel is else, so that it keeps no file system busy."""

_ELSEWHERE = (errno.ENOENT, errno.ENOTDIR)
"""It is not here, but may be in the next directory of the path."""

SHOWN_BYTES = 200
"""Of a name that could not be run."""


def start(program: Program, streams: Sequence[int]) -> int:
    """Start it with these as its descriptors 0 to 2, which are the caller's; its pid. What it raises is for `failure`."""
    if len(streams) != STREAMS:
        # Some were lost on the way, as happens to a process that may have no more.
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for fd in streams:
        os.set_blocking(fd, True)
    pid = _forked(program, streams) if program.limits else _spawned(program, streams)
    if program.oom_score_adj is not None:
        _write_oom_score_adj(pid, program.oom_score_adj)
    return pid


def _spawned(program: Program, streams: Sequence[int]) -> int:
    os.umask(program.umask)
    if program.directory == _HOME:
        return _spawned_here(program, streams)
    os.chdir(program.directory)
    try:
        return _spawned_here(program, streams)
    finally:
        os.chdir(_HOME)


def _spawned_here(program: Program, streams: Sequence[int]) -> int:
    # They came in the order of their numbers, so none of them lies where one before it is put.
    actions = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(streams)]
    first: OSError | None = None
    for path in _paths(program):
        try:
            return os.posix_spawn(path, list(program.argv), program.env, file_actions=actions, setsid=True)
        except NotImplementedError:
            # So says a Python that was built with a C library from before 2017.
            return _forked(program, streams)
        except OSError as error:
            # As `execvp` has it: what is there and cannot be run counts for more than what is not there.
            if first is None or first.errno in _ELSEWHERE:
                first = error
    assert first is not None, "there is a path to be tried"
    raise OSError(first.errno, first.strerror)


def _paths(program: Program) -> Iterator[bytes]:
    """Where it may be, in the order in which it is looked for."""
    name = program.argv[0]
    if b"/" in name:
        yield name
        return
    directories = program.env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    paths = [each + b"/" + name if each else name for each in directories]
    is_seen = False
    # A try costs many times what a look does.
    for path in paths:
        if os.access(path, os.F_OK):
            is_seen = True
            yield path
    if not is_seen:
        # Why not, only a try can say.
        yield from paths


def _forked(program: Program, streams: Sequence[int]) -> int:
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
    # Its end is taken in elsewhere, and not by the object.
    started.returncode = 0
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
    with suppress(OSError), open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
        file.write(str(value))


def failure(program: Program, error: Exception) -> Failed:
    """What to say of a program that `start` could not start."""
    number = error.errno or 0 if isinstance(error, OSError) else 0
    item = program.argv[0]
    if isinstance(error, OSError) and error.filename is not None:
        item = os.fsencode(error.filename)
    name = errno.errorcode.get(number, type(error).__name__)
    what = os.strerror(number) if number else str(error)
    if number == errno.ENOENT and b"/" in item and os.path.exists(os.path.join(program.directory, item)):
        what += ": the interpreter of"
    return Failed(number, f"{name}: {what}: {item[:SHOWN_BYTES].decode(errors='backslashreplace')}")
