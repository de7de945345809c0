"""`run`: a program beside the handler that wants it, which ends with its block.

    async with run(["ffmpeg", "-i", path, "-f", "mp4", "pipe:1"], stdout=upload, stderr=lines(on_log)) as child:
        ...

The block runs beside the program; leaving it waits for the program, whose failure is raised there as `CommandError`.
Whatever else ends the block, an exception, the job's time limit, a cancel, ends the program first, with all that it has started:
TERM, and KILL after the grace. When `run` is left nothing of it lives.
"""

import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import cast

import anyio

from ...proto import limits
from .. import process
from ..context import running_job
from .command import GRACE_S
from .program import UMASK_DEFAULT, Program
from .sentinels import Running, SentinelLostError, Sentinels
from .sinks import Output
from .stream import Stream
from .talk import Ended

SHOWN_BYTES = 2048
"""Of the end of what a program said on stderr, in the text of its failure."""

Stdin = bytes | os.PathLike[str] | None
"""What a program reads: bytes, a file, or nothing."""


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

    def __init__(self, running: Running, stdout: Stream, stderr: Stream) -> None:
        self._running = running
        self._done = anyio.Event()
        self._is_over = anyio.Event()
        self.stdout, self.stderr = stdout, stderr
        self.ended: Ended | None = None
        """How it ended; None while it runs."""
        self.failure: BaseException | None = None
        """What went wrong beside it: in a function for its output, with its sentinel."""
        self.is_timed_out = False

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._running.pid

    async def wait(self) -> Ended:
        """Wait until nothing of it is left and all of its output has been delivered; how it ended.

        What a function for its output raised is raised here.
        """
        await self._done.wait()
        if self.failure is not None:
            raise self.failure
        assert self.ended is not None
        return self.ended

    async def end(self, grace_s: float = GRACE_S) -> None:
        """Ask for its end: TERM for all of its tree, and KILL for what is left after the grace."""
        # Its sentinel is missed by whoever waits.
        with suppress(SentinelLostError):
            await self._running.end(round(grace_s * limits.SECOND_MS))

    # --- for `run` -----------------------------------------------------------------------------------------

    async def tend(
        self, feed: "_Feed | None", time_limit_s: float | None, grace_s: float, body: anyio.CancelScope
    ) -> None:
        """See to its streams and its time until it is over."""

        async def guarded(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - it is raised where the program was wanted
                self.failure = self.failure or (_only(error))
                body.cancel()

        async def time_out() -> None:
            assert time_limit_s is not None
            await anyio.sleep(time_limit_s)
            self.is_timed_out = True
            await self.end(grace_s)

        async with anyio.create_task_group() as streams:
            for stream in (self.stdout, self.stderr):
                streams.start_soon(guarded, stream.pump)
            async with anyio.create_task_group() as others:
                if feed is not None:
                    others.start_soon(guarded, feed.run)
                if time_limit_s is not None:
                    others.start_soon(guarded, time_out)
                await guarded(self._live)
                others.cancel_scope.cancel()
        self._done.set()

    async def _live(self) -> None:
        # Whatever is cancelled, how it ended has to be heard: only then nothing is left.
        try:
            with anyio.CancelScope(shield=True):
                self.ended = await self._running.wait()
        finally:
            self._is_over.set()
            self.stdout.over()
            self.stderr.over()

    async def finish(self, grace_s: float) -> None:
        """End it if it runs still, and wait for that."""
        if not self._is_over.is_set():
            with anyio.CancelScope(shield=True):
                await self.end(grace_s)
                await self._is_over.wait()


class _Feed:
    """What a program reads, if that is bytes: written into its pipe as it takes them."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._fd = fd
        self._data = memoryview(data)

    async def run(self) -> None:
        try:
            while self._data:
                try:
                    self._data = self._data[os.write(self._fd, self._data) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._fd)
        except BrokenPipeError:
            # It does not read all that there is, which is its right.
            return
        finally:
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = -1


class _Streams:
    """The three descriptors of a program, and our ends of those that are pipes."""

    def __init__(
        self, stdin: Stdin, stdout: Output, stderr: Output, said: Callable[[bytes], object] | None
    ) -> None:
        self.feed: _Feed | None = None
        with ExitStack() as undo:
            self._stdin = self._open_stdin(stdin)
            undo.callback(self.close)
            self.stdout = Stream(stdout, said)
            self.stderr = Stream(stderr, said)
            undo.pop_all()
        self.descriptors = (self._stdin, self.stdout.childs_end, self.stderr.childs_end)

    def _open_stdin(self, stdin: Stdin) -> int:
        if stdin is None or isinstance(stdin, os.PathLike):
            return os.open(stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        self.feed = _Feed(writer, stdin)
        return reader

    def started(self) -> None:
        """The program has its ends."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        self.stdout.started()
        self.stderr.started()

    def close(self) -> None:
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1
        if self.feed is not None:
            self.feed.close()
        for stream in (getattr(self, "stdout", None), getattr(self, "stderr", None)):
            if stream is not None:
                stream.close()


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
        [os.fsencode(each) for each in argv],
        os.fsencode(_absolute(directory)),
        environment(env or {}, pass_env),
        umask,
        dict(rlimits or {}),
        oom_score_adj,
    )
    error: BaseException | None = None
    streams = _Streams(stdin, stdout, stderr, said)
    try:
        running = await of_this_process().start(program, streams.descriptors)
        child = Child(running, streams.stdout, streams.stderr)
        streams.started()
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as body:
                tasks.start_soon(child.tend, streams.feed, time_limit_s, grace_s, body)
                try:
                    yield child
                    await child.wait()
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as raised:  # noqa: BLE001 - it is raised again when nothing is left
                    error = raised
                finally:
                    await child.finish(grace_s)
                    tasks.cancel_scope.cancel()
    finally:
        streams.close()
    # What went wrong beside the block is the cause of what the block met after it.
    error = child.failure or error
    if error is not None:
        raise error
    if ok is not None:
        _check(child, ok)


def _absolute(directory: str | os.PathLike[str] | None) -> str:
    return os.getcwd() if directory is None else os.path.abspath(directory)


def _check(child: Child, ok: Collection[int]) -> None:
    ended = child.ended
    assert ended is not None
    if child.is_timed_out:
        raise CommandTimeoutError(
            _with_last_words("it was over its time limit", child), ended, child.stderr.tail.text
        )
    if ended.status not in ok:
        raise CommandError(_with_last_words(how(ended), child), ended, child.stderr.tail.text)


def how(ended: Ended) -> str:
    """In words: how a program ended."""
    if ended.status is not None:
        return f"exit status {ended.status}"
    if ended.signal is None:
        return "its exit status is unknown"
    return f"signal {ended.signal} ({signal.strsignal(ended.signal) or 'without a name'})"


def _with_last_words(text: str, child: Child) -> str:
    said = child.stderr.tail.text[-SHOWN_BYTES:].decode(errors="replace").strip()
    return f"{text}: {said}" if said else text


def _only(error: BaseException) -> BaseException:
    """The one exception of a group that has one."""
    members = cast("BaseExceptionGroup[BaseException]", error).exceptions if _is_group(error) else ()
    return _only(members[0]) if len(members) == 1 else error


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


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
    given |= {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    job = running_job()
    if job is not None:
        given[b"STOKER_JOB"] = os.fsencode(job.id)
        given[b"STOKER_TOKEN"] = b"%d.%d" % job.token
    if (marker := own.get(process.MARKER.encode())) is not None:
        # By which what a worker leaves behind is found.
        given[process.MARKER.encode()] = marker
    return given
