"""A worker as its supervisor sees it: the process, its start page, and what was decided about it."""

import os
import secrets
import signal

import trio

from ..proto import work
from . import process, startpage
from .control import Exited, exited
from .process import Pidfd, Stat
from .slots import Slot
from .startpage import StartPage, Token
from .zygote_link import NONCE_BYTES

_SLOT = 0


class Child:
    """One worker, from the request to fork it until its end has been reported."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.nonce = secrets.token_hex(NONCE_BYTES)
        self.page_fd = startpage.create()
        self.page = StartPage(self.page_fd)
        self.pid = 0
        """0 until the zygote has said it."""
        self.is_told_to_end = False
        self.is_shutdown = False
        """Its end is the pool's doing, not its job's."""
        self.died_first = False
        """It had ended before its zygote did."""
        self.killed_for: Token | None = None
        """The attempt that a SIGKILL was meant for."""
        self.tree: list[Stat] = []
        """Its family as last seen while it lived."""
        self._pidfd: Pidfd | None = None

    @property
    def token(self) -> Token | None:
        """The attempt that runs in it, or was running when it ended."""
        return self.page.token(_SLOT)

    def born(self, pid: int, pidfd: int) -> None:
        """The zygote made it."""
        self.pid, self._pidfd = pid, Pidfd(pid, pidfd)
        self.close_page_fd()

    def close_page_fd(self) -> None:
        """The worker has mapped its page, or never will."""
        if self.page_fd >= 0:
            os.close(self.page_fd)
            self.page_fd = -1

    def send(self, number: int) -> None:
        """Signal it, if it has been born and lives."""
        if self._pidfd is not None:
            self._pidfd.send(number)

    def is_overdue(self) -> bool:
        """Its zygote has something to say of it: that it was born, or that it has ended."""
        return self._pidfd is None or self._pidfd.has_exited()

    def is_running(self) -> bool:
        """It lives, and is not stopped: then the broker may be told that its lease is in good hands."""
        if self._pidfd is None or self._pidfd.has_exited():
            return False
        found = process.stat(self.pid)
        return found is not None and not found.is_stopped and not found.has_ended

    def is_stuck_in(self, token: Token) -> bool:
        """It runs this attempt; or it is stopped, and so cannot even begin it."""
        if self.token is not None:
            return self.token == token
        found = process.stat(self.pid)
        return found is not None and found.is_stopped

    @property
    def is_blameless(self) -> bool:
        """Its end was decided here, and says nothing about whether the next one would live."""
        return self.is_told_to_end or self.is_shutdown or self.killed_for is not None

    async def wait_ended(self, within_ms: int) -> bool:
        """Wait for its end; False if that took too long. One that was never born has ended."""
        if self._pidfd is None:
            return True
        with trio.move_on_after(within_ms / 1000):
            await trio.lowlevel.wait_readable(self._pidfd.fd)
            return True
        return False

    def reap(self) -> Exited:
        """Its exit, where its zygote no longer can say it and it has become this process's child."""
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG) if self.pid else (0, 0, None)
        except ChildProcessError:
            pid, status, usage = 0, 0, None
        if pid == 0 or usage is None:
            return Exited(self.nonce, None, None, 0, 0)
        return exited(self.nonce, status, usage)

    def finish(self) -> None:
        """Tell it to finish its job and end."""
        self.is_told_to_end = True
        self.send(signal.SIGTERM)

    def strike(self, token: Token, reason: str) -> None:
        """Have its handler stopped, if it is still that attempt, or once it comes to it."""
        # Written before it is looked at, so an attempt that begins in between finds it.
        self.page.kill(_SLOT, token, reason)
        if self.token == token:
            self.send(process.STRIKE_SIGNAL)

    def report(
        self, status: int | None, number: int | None, usage: tuple[int, int], swept: bool
    ) -> work.Exited:
        """What the broker is told of its end; `usage` is peak memory in bytes and CPU time in ms."""
        token = self.token
        return work.Exited(
            worker=self.nonce,
            token=None if token is None else list(token),
            status=status,
            signal=number,
            kill_token=None if self.killed_for is None else list(self.killed_for),
            shutdown=self.is_shutdown,
            swept=swept,
            memory_peak_bytes=usage[0],
            cpu_ms=usage[1],
        )

    def close(self) -> None:
        """It has been reported; give everything back."""
        self.close_page_fd()
        self.page.close()
        if self._pidfd is not None:
            self._pidfd.close()
