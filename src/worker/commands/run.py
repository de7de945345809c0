"""`run`: a program beside the handler that wants it, which ends with its block.

    async with run(["ffmpeg", "-i", path, "-f", "mp4", "pipe:1"], stdout=upload, stderr=lines(on_log)) as child:
        ...

The block runs beside the program; leaving it waits for the program, whose failure is raised there as `CommandError`.
Whatever else ends the block, an exception, the job's time limit, a cancel, ends the program first, with all that it has started:
TERM, and KILL after the grace. When `run` is left nothing of it lives.
"""

import math
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import anyio.lowlevel

from ...proto import limits
from .. import process
from ..context import running_job
from .command import GRACE_S
from .program import UMASK_DEFAULT, Program, ProgramError, encoded, encoded_arguments
from .sentinels import Running, SentinelLostError, Sentinels
from .sinks import Output
from .stream import Stream
from .streams import Feed, Stdin, Streams
from .talk import Ended

SHOWN_BYTES = 2048
"""Of the end of what a program said on stderr, in the text of its failure."""


class CommandError(Exception):
    """The program failed: its exit status is not 0, a signal ended it, or nobody knows."""

    def __init__(self, text: str, ended: Ended | None, stderr: bytes = b"") -> None:
        super().__init__(text)
        self.ended = ended
        self.status = None if ended is None else ended.status
        self.signal = None if ended is None else ended.signal
        self.stderr = stderr
        """The end of what it said there, if nobody else got it."""


class CommandTimeoutError(CommandError):
    """It was over the time limit that `run` was given, and has been ended."""


class Child:
    """A program that runs, or has ended."""

    def __init__(self, stdout: Stream, stderr: Stream) -> None:
        self._running: Running | None = None
        self._has_begun = anyio.Event()
        self._is_over = anyio.Event()
        self._done = anyio.Event()
        self.body = anyio.CancelScope()
        """Around the block beside it."""
        self._last_grace_s: float | None = None
        """It is to end, and if it has not begun, as soon as it has."""
        self.stdout, self.stderr = stdout, stderr
        self.ended: Ended | None = None
        """How it ended; None while it runs."""
        self.failure: BaseException | None = None
        """What went wrong beside it: in a function for its output, with its sentinel."""
        self.is_timed_out = False

    @property
    def pid(self) -> int:
        """Of the program itself."""
        assert self._running is not None, "nobody has it before it runs"
        return self._running.pid

    async def wait(self) -> Ended:
        """Wait until nothing of it is left and all of its output has been delivered; how it ended.

        What a function for its output raised is raised here. When `run` is left early its output is not waited for.
        """
        await self._done.wait()
        if self.failure is not None:
            raise self.failure
        assert self.ended is not None
        return self.ended

    async def end(self, grace_s: float = GRACE_S) -> None:
        """Ask for its end: TERM for all of its tree, and KILL for what is left after the grace."""
        assert self._running is not None, "nobody has it before it runs"
        # Its sentinel is missed by whoever waits.
        with suppress(SentinelLostError):
            await self._running.end(round(grace_s * limits.SECOND_MS))

    # --- for `run` -----------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Wait until it runs, or cannot be started, which cancels this."""
        await self._has_begun.wait()

    async def tend(
        self,
        start: Callable[[], Awaitable[Running]],
        streams: Streams,
        time_limit_s: float | None,
        grace_s: float,
    ) -> None:
        """Start it, and see to its streams and its time until it is over. What goes wrong ends the body."""
        try:
            await self._guarded(partial(self._start, start))
            streams.started()
            if self._running is not None:
                self._has_begun.set()
                await self._attend(streams.feed, time_limit_s, grace_s)
        finally:
            for each in (self._has_begun, self._is_over, self._done):
                each.set()

    async def _attend(self, feed: Feed | None, time_limit_s: float | None, grace_s: float) -> None:
        async with anyio.create_task_group() as pumps:
            for stream in (self.stdout, self.stderr):
                pumps.start_soon(self._pump, stream)
            async with anyio.create_task_group() as others:
                if feed is not None:
                    others.start_soon(self._guarded, feed.run)
                if time_limit_s is not None:
                    others.start_soon(self._time_out, time_limit_s, grace_s)
                await self._guarded(self._live)
                others.cancel_scope.cancel()

    async def _guarded(self, work: Callable[[], Awaitable[object]]) -> None:
        """What it raises is raised where the program was wanted."""
        try:
            await work()
        except BaseException as error:
            if isinstance(error, anyio.get_cancelled_exc_class()) and _is_cancelled():
                raise
            self.failure = self.failure or error
            self.body.cancel()

    async def _pump(self, stream: Stream) -> None:
        try:
            async with anyio.create_task_group() as works:
                for work in stream.works:
                    works.start_soon(self._guarded, work)
        finally:
            # While it is being ended it is not to wait for somebody who reads.
            await self._guarded(stream.drain)

    async def _time_out(self, time_limit_s: float, grace_s: float) -> None:
        await anyio.sleep(time_limit_s)
        self.is_timed_out = True
        await self.end(grace_s)

    async def _start(self, start: Callable[[], Awaitable[Running]]) -> None:
        # Broken off it would leave a program that nobody waits for.
        with anyio.CancelScope(shield=True):
            if self._last_grace_s is None:
                self._running = await start()
            if self._running is not None and self._last_grace_s is not None:
                await self.end(self._last_grace_s)

    async def _live(self) -> None:
        assert self._running is not None
        # Whatever is cancelled, how it ended has to be heard: only then nothing is left.
        try:
            with anyio.CancelScope(shield=True):
                self.ended = await self._running.wait()
        finally:
            self._is_over.set()
            self.stdout.over()
            self.stderr.over()

    async def finish(self, grace_s: float) -> None:
        """End it if it runs still, or is to run, and wait for that."""
        # First, because asyncio's own cancellation respects no shield: what is left to do then, `tend` does.
        self._last_grace_s = grace_s
        with anyio.CancelScope(shield=True):
            if self._running is not None and not self._is_over.is_set():
                await self.end(grace_s)
            await self._is_over.wait()


@asynccontextmanager
async def run(
    argv: Sequence[str | bytes | os.PathLike[str]],
    *,
    stdin: Stdin = None,
    stdout: Output = None,
    stderr: Output = None,
    directory: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Collection[str] = (),
    umask: int = UMASK_DEFAULT,
    rlimits: Mapping[str, int] | None = None,
    oom_score_adj: int | None = None,
    time_limit_s: float | None = None,
    grace_s: float = GRACE_S,
    ok: Collection[int] | None = (0,),
    said: Callable[[bytes], object] | None = None,
) -> AsyncGenerator[Child]:
    """Run a program; see the module. `argv` is never seen by a shell.

    `directory`: where, the current one if None. Its environment has PATH, HOME and LANG, what `env` says, and of
    this process's what `pass_env` names. `rlimits`: see `program.LIMITS`. `ok`: exit statuses that are no failure;
    None: nothing is. `said` is called with all that it writes, to either stream, as it comes.
    Raises ProgramError for what can never run, StartError for what cannot be started, CommandError on leaving.
    """
    program = Program(
        _arguments(argv),
        encoded(_absolute(directory), "the working directory"),
        environment(env or {}, pass_env),
        umask,
        dict(rlimits or {}),
        oom_score_adj,
    )
    program.check()
    await anyio.lowlevel.checkpoint_if_cancelled()
    error: BaseException | None = None
    streams = Streams(stdin, stdout, stderr, (said, said))
    child = Child(streams.stdout, streams.stderr)
    start = partial(of_this_process().start, program, streams.descriptors)
    try:
        async with anyio.create_task_group() as tasks:
            with child.body:
                tasks.start_soon(child.tend, start, streams, time_limit_s, grace_s)
                try:
                    await child.begin()
                    yield child
                    await child.wait()
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as raised:  # noqa: BLE001 - it is raised again when nothing is left
                    # What went wrong beside the block is the cause of what the block met after it.
                    error = child.failure or raised
                finally:
                    await child.finish(grace_s)
                    tasks.cancel_scope.cancel()
    except anyio.get_cancelled_exc_class():
        if error is None and child.failure is None:
            raise
    finally:
        streams.close()
    error = error or child.failure
    if error is not None:
        raise error
    _check(child, ok)


def _arguments(argv: Sequence[str | bytes | os.PathLike[str]]) -> list[bytes]:
    if isinstance(argv, str | bytes):
        raise ProgramError(
            "argv must be a list, the program first: there is no shell that takes a text apart"
        )
    return encoded_arguments(argv)


def _is_cancelled() -> bool:
    """By a scope around this. In asyncio anybody may raise what looks like it."""
    return anyio.current_effective_deadline() == -math.inf


def _absolute(directory: str | os.PathLike[str] | None) -> str:
    return os.getcwd() if directory is None else os.path.abspath(directory)


def _check(child: Child, ok: Collection[int] | None) -> None:
    ended = child.ended
    assert ended is not None
    if child.is_timed_out:
        raise CommandTimeoutError(
            _with_last_words("it was over its time limit", child), ended, child.stderr.tail
        )
    if ok is None:
        return
    if not ended.is_gone:
        raise CommandError("not all of its processes would die", ended, child.stderr.tail)
    if ended.status not in ok:
        raise CommandError(_with_last_words(how(ended), child), ended, child.stderr.tail)


def how(ended: Ended) -> str:
    """In words: how a program ended."""
    if ended.status is not None:
        return f"exit status {ended.status}"
    if ended.signal is None:
        return "its exit status is unknown"
    return f"signal {ended.signal} ({signal.strsignal(ended.signal) or 'without a name'})"


def _with_last_words(text: str, child: Child) -> str:
    said = child.stderr.tail[-SHOWN_BYTES:].decode(errors="replace").strip()
    return f"{text}: {said}" if said else text


_sentinels: dict[int, Sentinels] = {}


def of_this_process() -> Sentinels:
    """The sentinels of this process; those of one that it was forked from are not its own."""
    own = os.getpid()
    if own not in _sentinels:
        _sentinels.clear()
        _sentinels[own] = Sentinels()
    return _sentinels[own]


def environment(env: Mapping[str, str], pass_env: Collection[str]) -> dict[bytes, bytes]:
    """All that a program is given."""
    own = os.environb
    given = {name: own[name] for name in (b"PATH", b"HOME", b"LANG") if name in own}
    for name in pass_env:
        if (value := own.get(os.fsencode(name))) is not None:
            given[os.fsencode(name)] = value
    for name, text in env.items():
        given[encoded(name, "environment:")] = encoded(text, f"environment: {name}")
    job = running_job()
    if job is not None:
        given[b"STOKER_JOB"] = os.fsencode(job.id)
        given[b"STOKER_TOKEN"] = b"%d.%d" % job.token
    for name in (process.MARKER, process.SOCKET):
        # By which what a worker leaves behind is found, and its broker by a program that has work for it.
        if (value := own.get(name.encode())) is not None:
            given[name.encode()] = value
    return given
