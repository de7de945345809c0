"""The supervisor's hold on one zygote: start it, tell it to fork, hear what it says.

The zygote is started by exec, never by a fork of this process, in which Trio runs. Closing the link
is how it is told to end.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys

import trio

from . import control, process
from .control import Fork, Message, Start

MARKER_BYTES = 32
"""Of the zygote's own marker, in hex: at least as long as any nonce, which takes its place."""

END_MS = 3000
"""A zygote that was let go and has not ended by then is killed: its workers get 2 s of it."""


def start_directory() -> str:
    """The working directory, by the name under which this process was started in it.

    A link there may lead to another directory by the time when the next zygote is started in it.
    """
    named = os.environ.get("PWD", "")
    try:
        return named if os.path.samefile(named, ".") else os.getcwd()
    except OSError:
        return os.getcwd()


class ZygoteLink:
    """One zygote process, from start to reaping."""

    def __init__(self, start: Start, directory: str) -> None:
        """Start it there. The app is being imported from here on; `receive` tells how that went.

        OSError if directory or interpreter are not there any more.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._socket = ours
        command = [sys.executable, "-m", "stoker.worker.zygote", str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # A nonce of its own, over which each worker writes its own.
                env={
                    **os.environ,
                    process.MARKER: secrets.token_hex(MARKER_BYTES),
                    process.SOCKET: start.socket,
                },
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self.code: int | None = None
        self._pidfd = process.Pidfd(self.pid)
        control.send(self._socket, start)

    async def fork(self, fork: Fork, page_fd: int) -> None:
        """Ask for a worker. Lost if the zygote is gone, which `receive` then tells."""
        while True:
            try:
                control.send(self._socket, fork, page_fd)
                return
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)
            except (OSError, trio.ClosedResourceError):
                return

    async def receive(self) -> tuple[Message, int | None] | None:
        """The next message, with the descriptor it brought, which is the caller's; None at the end."""
        while True:
            try:
                return control.receive(self._socket)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except ConnectionResetError:
                return None

    def kill(self) -> None:
        """SIGKILL. The kernel ends its workers with it, and `receive` tells."""
        self._pidfd.send(signal.SIGKILL)

    async def end(self, *, at_once: bool) -> None:
        """Let go of it, wait until it has ended, and reap it. `code` then is as `subprocess` has it.

        `at_once` is for one that has no workers yet, and may be deep in a long import.
        """
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        if at_once:
            self.kill()
        with trio.move_on_after(END_MS / 1000) as in_time:
            await trio.lowlevel.wait_readable(self._pidfd.fd)
        if in_time.cancelled_caught:
            self.kill()
        self.code = self._process.wait()
        self._pidfd.close()
