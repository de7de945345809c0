"""The broker as a program: start in a safe order, serve, end in a clean one.

Start, each step only if the one before succeeded:

1. The state directory is made or checked, and its lock taken: from here on this is the only broker.
2. The journal is opened, checked and loaded, on the thread that will own it. Nothing is answered yet.
3. The core takes in what the journal held, carried over to this boot's clock.
4. The socket is made. What a client could connect to is complete.

Every refusal to start names the path and has its own exit code. A storage error while serving is
written down for `status` and for the next start, which then looks at the whole file; the broker ends
without another answer, because its memory is ahead of the disk.
"""

import contextlib
import ctypes
import gc
import os
import random
import resource
import signal
import traceback
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar, cast

import trio

from .. import __version__
from ..config.exits import Exit
from ..config.settings import BrokerSettings
from . import clock
from .access import OVERFLOW_UID, Grants
from .chores import Chores
from .core.rules import Rules
from .core.step import Core
from .driver import Driver
from .files import JOURNAL, SNAPSHOTS, Ballast, OwnerLock, check_files, prepare_directory
from .journal import Journal, JournalBrokenError, JournalFullError, Recovered, Retention
from .lasterror import (
    LastError,
    mark_recovered,
    read_last_error,
    refuse_lost,
    still_damaged,
    still_lost,
    write_last_error,
)
from .listener import Listener, connections_max
from .log import Log
from .notify import Notifier
from .outputs import Outputs, discard_unknown, make_directory
from .owners import Owners
from .recovery import restore
from .refusals import JournalCorruptError, StartRefusedError
from .socket import ListeningSocket
from .storage import Storage
from .thread import JournalThread, YieldToJournal
from .whereabouts import Inodes, JournalLostError

CLOSE_S = 10.0
"""How long the journal may take to close. It was synced before, so nothing but time is at stake."""

COLLECT_THRESHOLDS = (10_000, 20, 100)
"""Fourteen times the usual for the youngest objects, and ten times for the oldest."""

_PR_SET_DUMPABLE = 4
_PR_SET_TIMERSLACK = 29

T = TypeVar("T")

OpenJournal = Callable[[str, BrokerSettings, bool], Journal]
"""Makes the journal of a state directory; the flag says that the last run ended in a storage error."""


def main(settings: BrokerSettings, *, ready: Callable[[], None] = lambda: None) -> int:
    """`stoker broker`: run until told to stop; the exit code. `ready` is called when it is listening."""
    _prepare_process()
    return serve_to_the_end(settings, Log(form=settings.log_format), ready=ready)


def serve_to_the_end(
    settings: BrokerSettings,
    log: Log,
    *,
    open_journal: OpenJournal | None = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """The same, in a process that is somebody else's to prepare. Tests bring their own journal."""
    serve = partial(
        run_broker, settings, log, open_journal=open_journal or open_sqlite, started=lambda _: ready()
    )
    try:
        trio.run(serve)
    except (JournalBrokenError, JournalFullError) as error:
        # First, because damage is both: met while running it is no refusal to start.
        return _broke(error, settings.data, log)
    except StartRefusedError as error:
        return _refused(error, settings.data, log)
    except KeyboardInterrupt:
        # Before there was anything to stop: the start was given up, and everything given back.
        return Exit.OK
    except Exception as error:  # noqa: BLE001  a fault of the broker itself: its exit code says so
        # What is on disk is sound: it was written by rules that had not failed yet.
        log.event("internal_error", error=repr(error))
        traceback.print_exc()
        return Exit.FAILURE
    return Exit.OK


def _refused(error: StartRefusedError, data: str, log: Log) -> int:
    if Exit[error.exit_word] is Exit.DATA_REFUSED:
        # The directory is ours, only what lies in it is not right: `stoker status` shall say so.
        _write_down(error, error.exit_word, data, still_lost(data))
    log.event("refused_to_start", reason=error)
    return Exit[error.exit_word]


def _broke(error: JournalBrokenError | JournalFullError, data: str, log: Log) -> int:
    files = error.files if isinstance(error, JournalLostError) else still_lost(data)
    written = _write_down(error, error.exit_word, data, files)
    log.event("storage_failed", error=error, written_down=written)
    return Exit[error.exit_word]


def _write_down(error: Exception, exit_word: str, data: str, lost_files: Inodes) -> bool:
    damage = str(error) if isinstance(error, JournalCorruptError) else still_damaged(data)
    at_ms = clock.now().wall_ms
    return write_last_error(
        data, LastError(at_ms, exit_word, str(error), lost_files=lost_files, damage=damage)
    )


def _prepare_process() -> None:
    """Private files, all the descriptors there are, no core dump with payloads in it, exact short sleeps."""
    os.umask(0o077)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # The default slack of 50 us would be added to each short wait for the journal.
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _calm_collector() -> None:
    """Spare the cycle collector what was recovered, and let it look at the rest less often.

    A full collection walks every job there is, and nothing of a job is ever part of a cycle; with a
    million of them it would stop the loop for longer than a heartbeat of the shortest lease.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_THRESHOLDS)


async def run_broker(
    settings: BrokerSettings,
    log: Log,
    *,
    open_journal: OpenJournal,
    started: Callable[[Driver], None] = lambda _: None,
) -> None:
    """Start, serve until SIGTERM, SIGINT or `Driver.stop`, and end. Raises what kept it from either."""
    uid = os.geteuid()
    if uid == OVERFLOW_UID:
        says = (
            f"uid {OVERFLOW_UID} (nobody) stands for every user that the kernel cannot name; use another user"
        )
        raise StartRefusedError(settings.socket, says)
    directory = prepare_directory(settings.data, uid=uid)
    with contextlib.ExitStack() as undo:
        check_files(directory)
        undo.callback(OwnerLock(directory).release)
        notifier = Notifier(os.environ)
        last_error = read_last_error(directory)
        is_suspect = last_error is not None and not last_error.recovered_at_ms
        if is_suspect and last_error is not None:
            refuse_lost(directory, last_error)
        thread = JournalThread(lambda: open_journal(directory, settings, is_suspect))
        undo.callback(_close_journal, thread, log)
        ballast = Ballast(directory)
        recovered = await _load(thread, ballast)
        if is_suspect:
            mark_recovered(directory, clock.now().wall_ms)
        _prepare_outputs(directory, recovered.sequence, log)
        core = _recover(settings, recovered)
        _calm_collector()
        storage = Storage(directory, ballast, _retention(settings), settings.low_water_bytes, log)
        about = {
            "version": __version__,
            "pid": os.getpid(),
            "socket": settings.socket,
            "data": directory,
            "started_at_ms": clock.now().wall_ms,
            "last_error": last_error._asdict() if last_error is not None else None,
        }
        driver = Driver(
            core,
            thread,
            storage,
            clock=clock.now,
            log=log,
            snapshots=os.path.join(directory, SNAPSHOTS),
            about=about,
        )
        undo.callback(driver.close)
        outputs = Outputs(directory, thread, log, driver.commit_failed)
        driver.committer.deleted = outputs.deleted
        _serve(driver, core, thread, storage, outputs, settings, notifier, log)
        log.event(
            "ready", pid=os.getpid(), socket=settings.socket, epoch=recovered.epoch, jobs=len(recovered.jobs)
        )
        notifier.send("READY=1")
        started(driver)
        await _run_until_stopped(driver, thread, notifier, log)


def _serve(
    driver: Driver,
    core: Core,
    thread: JournalThread,
    storage: Storage,
    outputs: Outputs,
    settings: BrokerSettings,
    notifier: Notifier,
    log: Log,
) -> None:
    chores = Chores(
        core,
        driver.step,
        thread,
        driver.committer,
        driver.questions,
        storage,
        Owners(),
        notifier,
        log,
        driver.commit_failed,
    )
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = ListeningSocket(settings.socket, mode=settings.socket_mode, gid=settings.socket_gid)
    access = settings.access
    grants = Grants(access.submit, access.work, access.admin)
    _warn_if_closed(place, settings, grants, log)
    listener = Listener(
        place,
        driver.poller,
        log,
        driver.deadlines,
        capacity=connections_max(descriptors),
        own_uid=os.geteuid(),
        grants=grants,
        on_input=driver.received,
        on_evicted=driver.end,
    )
    driver.serve(listener, lambda now: min(chores.pass_time(now), outputs.pass_time(now)))


def _prepare_outputs(directory: str, sequence: int, log: Log) -> None:
    """Nothing else needs what programs said, so no trouble with it keeps a broker from starting: pools refuse to
    keep it, and say why."""
    try:
        make_directory(directory)
        discard_unknown(directory, sequence)
    except OSError as error:
        log.event("no_output_directory", error=error)


def _warn_if_closed(place: ListeningSocket, settings: BrokerSettings, grants: Grants, log: Log) -> None:
    """Say so when the files keep out those whom the configuration lets in: they only see a refusal."""
    if grants.names_anybody and not settings.socket_mode & 0o022:
        log.event(
            "socket_closed_to_others",
            mode=f"{settings.socket_mode:04o}",
            advice="[access] lets others in; set socket_mode, and socket_group for 0660",
        )
    hindrance = place.closed_to()
    if hindrance is not None:
        log.event("socket_closed_to_others", directory=hindrance, advice="chmod it, or choose another")


async def _run_until_stopped(driver: Driver, thread: JournalThread, notifier: Notifier, log: Log) -> None:
    instrument = YieldToJournal(thread)
    trio.lowlevel.add_instrument(instrument)
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signal, driver, notifier, log)
            try:
                await driver.run()
            except (JournalBrokenError, JournalFullError) as error:
                # Taken out of the nursery by hand, which would wrap it.
                failure = error
            nursery.cancel_scope.cancel()
    finally:
        trio.lowlevel.remove_instrument(instrument)
    if failure is not None:
        raise failure


async def _stop_on_signal(
    driver: Driver,
    notifier: Notifier,
    log: Log,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            log.event("stopping", signal=signal.Signals(number).name)
            notifier.send("STOPPING=1")
            driver.stop()


# --- the journal ---------------------------------------------------------------------------------------


def open_sqlite(directory: str, settings: BrokerSettings, is_suspect: bool) -> Journal:
    """The real journal. Of a suspect one, whose last run ended in a storage error, the whole file is looked at."""
    # Here, so that whoever brings another journal does not load SQLite.
    from .sqlite import SqliteJournal

    synchronous = cast(Literal["FULL", "NORMAL"], settings.synchronous)
    return SqliteJournal(os.path.join(directory, JOURNAL), synchronous=synchronous, check=is_suspect)


async def _load(thread: JournalThread, ballast: Ballast) -> Recovered:
    try:
        return await _visit(thread, _load_now)
    except JournalFullError:
        # The ballast was made for this: a broker must come back on a full disk, and take acks.
        ballast.release()
        return await _visit(thread, _load_now)


def _load_now(journal: Journal) -> Recovered:
    boot_id, now = clock.boot_id(), clock.now()
    return journal.load(boot_id=boot_id, boot_ms=now.boot_ms, wall_ms=now.wall_ms)


async def _visit(thread: JournalThread, work: Callable[[Journal], T]) -> T:
    """One piece of work on the journal thread, before there is a driver."""
    answer: list[tuple[T, BaseException | None]] = []
    thread.submit(work, lambda result, error: answer.append((result, error)))
    while not answer:
        await trio.lowlevel.wait_readable(thread.fileno())
        thread.drain_wakeup()
        thread.collect()
    result, error = answer[0]
    if error is not None:
        raise error
    return result


def _close_journal(thread: JournalThread, log: Log) -> None:
    failures: list[BaseException] = []
    thread.submit(lambda journal: journal.close(), lambda _, error: failures.extend([error] if error else []))
    if not thread.stop(CLOSE_S):
        log.event("journal_not_closed", reason=f"not over after {CLOSE_S} s")
        return
    thread.collect()
    for error in failures:
        if isinstance(error, JournalBrokenError):
            # As while serving. A full disk only leaves a log, from which the next start has everything.
            raise error
        log.event("journal_not_closed", reason=error)


# --- the core ------------------------------------------------------------------------------------------


def _recover(settings: BrokerSettings, recovered: Recovered) -> Core:
    core = Core(_rules(settings), epoch=recovered.epoch, now=clock.now(), chance=random.random)
    restore(core, recovered)
    return core


def _rules(settings: BrokerSettings) -> Rules:
    return Rules(
        queue_default=settings.queue_default,
        queues=settings.queues,
        heartbeat_ms_max=settings.heartbeat_ms_max,
        reconnect_grace_ms=settings.reconnect_grace_ms,
        supervisor_grace_ms=settings.supervisor_grace_ms,
        kill_grace_ms=settings.kill_grace_ms,
        jobs_max=settings.jobs_max,
    )


def _retention(settings: BrokerSettings) -> Retention:
    return Retention(
        settings.done_kept_ms, settings.done_kept_max, settings.dead_kept_ms, settings.dead_kept_max
    )
