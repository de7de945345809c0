"""The zygote: imports the app once, then forks a worker whenever the supervisor asks for one.

Started by exec as `python -m stoker.worker.zygote FD`, FD being its end of the socketpair (see
`control`). One thread, no event loop: it sleeps in poll until a packet comes or a child ends. After
the import the heap is collected and frozen, so that workers share nearly all of it for good.

It is a subreaper, so what its workers leave behind becomes its child and is reaped here. It does not
listen to TERM, INT or HUP, which at a terminal reach everybody: it ends when the supervisor's end of
the socketpair closes, and takes its workers with it, within SUPERVISOR_DEATH_MS: first TERM, so that
a job about to end can, then SIGKILL to what they have started and then to themselves. While it imports, the kernel kills it with the
supervisor. If it dies itself, the kernel kills its workers.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import NoReturn

from ..proto import limits
from . import birth, control, log, process, records, scratch, sources
from .app import App
from .control import Files, Fork, Forked, Kinds, Message, Ready, Start, Unforked
from .flavour import Flavour
from .process import MarkerSpace, Pidfd
from .report import reason_of, report_of
from .sweep import sweep, sweep_below, sweep_own
from .unimportable import failure_of

SWEEP_MS = limits.SUPERVISOR_DEATH_MS // 4


class Zygote:
    """Workers by pid, and the poll loop. The app is imported already."""

    def __init__(self, sock: socket.socket, start: Start, app: App, marker: MarkerSpace) -> None:
        self._socket = sock
        self._start = start
        self._app = app
        self._marker = marker
        self._workers: dict[int, str] = {}
        self._pid = os.getpid()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._poll = select.poll()

    def run(self) -> None:
        """Fork and reap until the supervisor is gone; then end the workers."""
        self._listen_to_signals()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)
        try:
            self._say_ready()
            while self._turn():
                pass
        except (BrokenPipeError, ConnectionResetError):
            # The supervisor went away while it was being told something.
            pass
        self._end_workers()

    def _listen_to_signals(self) -> None:
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        # The byte in the pipe is what counts; a handler has to exist for it to be written.
        process.disregard(signal.SIGCHLD)

    def _say_ready(self) -> None:
        kinds = self._app.kinds()
        for at in range(0, len(kinds), control.KINDS_A_PACKET):
            self._tell(Kinds(kinds[at : at + control.KINDS_A_PACKET]))
        modules = sources.modules(self._start.target)
        if self._start.watch:
            _tell_files(self._socket, modules.values())
        self._tell(Ready(_other_threads(), self._app.flavours(), sources.digest(modules.items())))

    def _tell(self, message: Message, fd: int | None = None) -> None:
        control.send(self._socket, message, fd)

    def _turn(self) -> bool:
        """One sleep and what it brought; False when the supervisor is gone."""
        ready = {fd for fd, _ in self._poll.poll()}
        if self._wake_reader.fileno() in ready:
            self._drain()
            self._reap()
        if self._socket.fileno() not in ready:
            return True
        packet = control.receive(self._socket)
        if packet is None:
            return False
        message, page_fd = packet
        if isinstance(message, Fork) and page_fd is not None:
            self._fork(message, page_fd)
            os.close(page_fd)
        return True

    def _drain(self) -> None:
        try:
            self._wake_reader.recv(limits.READ_BYTES)
        except BlockingIOError:
            return

    # --- birth ---------------------------------------------------------------------------------------

    def _fork(self, fork: Fork, page_fd: int) -> None:
        nonce = fork.nonce
        beside_threads = bool(_other_threads())
        # What is in a buffer now would be written by both.
        process.flush_streams()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._tell(Unforked(nonce, reason_of(error)))
            return
        if pid == 0:
            self._be_worker(fork, page_fd, beside_threads)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._workers[pid] = nonce
        # It cannot have been reaped yet, so this is its pidfd and nobody else's.
        pidfd = os.pidfd_open(pid)
        self._tell(Forked(nonce, pid), pidfd)
        os.close(pidfd)

    def _be_worker(self, fork: Fork, page_fd: int, beside_threads: bool) -> NoReturn:
        status = 1
        try:
            self._socket.close()
            self._wake_reader.close()
            self._wake_writer.close()
            status = birth.work(
                self._app,
                self._start,
                fork,
                page_fd,
                zygote_pid=self._pid,
                marker=self._marker,
                beside_threads=beside_threads,
            )
        except BaseException as error:  # noqa: BLE001 - whatever it is, this process must end here
            # Not through sys.stderr and sys.excepthook, of which the app may have made anything.
            log.write(f"stoker: worker {os.getpid()} ended by {report_of(error)}\n".encode())
        finally:
            try:
                process.flush_streams()
            finally:
                os._exit(status)

    # --- death ---------------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Take in every child that has ended: workers, and what workers left behind."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            nonce = self._workers.pop(pid, None)
            if nonce is None:
                continue
            self._tell(control.exited(nonce, status, usage))

    def _end_workers(self) -> None:
        workers = dict(self._workers)
        targets = [Pidfd(pid) for pid in workers]
        for target in targets:
            target.send(signal.SIGTERM)
        end = time.monotonic() + limits.SUPERVISOR_DEATH_TERM_MS / 1000
        for target in targets:
            target.has_exited(round(max(0, end - time.monotonic()) * 1000))
        self._sweep_below([target for target in targets if not target.has_exited()])
        for target in targets:
            target.send(signal.SIGKILL)
        for target in targets:
            target.has_exited(SWEEP_MS)
            os.waitpid(target.pid, os.WNOHANG)
            sweep(target.pid, workers[target.pid], within_ms=SWEEP_MS)
        # And what is left of workers that ended before, whose supervisor had no time to see to it.
        sweep_own(self._marker.own, within_ms=SWEEP_MS)
        for nonce in workers.values():
            scratch.remove(scratch.path_of(nonce, self._start.scratch))

    def _sweep_below(self, targets: Iterable[Pidfd]) -> None:
        """End what workers have started, before they end themselves.

        The death of a worker frees its job, now that no supervisor is there to be waited for.
        """
        for target in targets:
            target.send(signal.SIGSTOP)
        sweep_below({target.pid: self._workers[target.pid] for target in targets}, within_ms=SWEEP_MS)


def load(target: str) -> App:
    """The app that `module:name` names (`app` if no name is given)."""
    module_name, _, attribute = target.partition(":")
    found: object = importlib.import_module(module_name)
    for name in (attribute or "app").split("."):
        found = getattr(found, name)
    if not isinstance(found, App):
        raise TypeError(f"{target} is a {type(found).__qualname__}, not a stoker.App")
    return found


def _other_threads() -> list[str]:
    """Threads beside this one: by name those Python knows, by number those of libraries."""
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    unknown = len(os.listdir("/proc/self/task")) - 1 - len(names)
    return [*names, f"{unknown} more"] if unknown > 0 else names


def _disregard_what_reaches_everybody() -> None:
    process.disregard(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _tell_files(sock: socket.socket, files: Iterable[str]) -> None:
    paths = sorted(set(files))
    for at in range(0, len(paths), control.FILES_A_PACKET):
        control.send(sock, Files(paths[at : at + control.FILES_A_PACKET]))


def _import(sock: socket.socket, start: Start) -> App | None:
    gc.disable()
    try:
        app = load(start.target)
        app.gather()
        app.add_dead_kinds()
        if start.commands is not None:
            app.add_commands()
    except BaseException as error:  # noqa: BLE001 - a module that ends the interpreter is as unusable
        if start.watch:
            _tell_files(sock, [*sources.modules(start.target).values(), *sources.files_of(error)])
        control.send(sock, failure_of(start.target, error))
        return None
    finally:
        process.flush_streams()
    if any(flavour != Flavour.PLAIN for flavour in app.flavours()):
        # Once here, and not in each worker: the pages are shared.
        importlib.import_module("stoker.worker.async_worker")
    gc.collect()
    gc.freeze()
    return app


def main(fd: int, supervisor_pid: int) -> int:
    """Serve the supervisor at the other end of `fd`; the exit status."""
    marker = MarkerSpace()
    _disregard_what_reaches_everybody()
    process.die_with_parent(supervisor_pid)
    process.become_subreaper()
    process.set_name(process.ZYGOTE_NAME)
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    packet = control.receive(sock)
    if packet is None or not isinstance(packet[0], Start):
        return 0
    log.set_form(packet[0].log_format)
    records.mark()
    app = _import(sock, packet[0])
    if app is None:
        return 1
    _disregard_what_reaches_everybody()
    zygote = Zygote(sock, packet[0], app, marker)
    # From here on the end of the socketpair tells; a kill now would leave no time for the workers.
    process.live_without_parent()
    zygote.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
