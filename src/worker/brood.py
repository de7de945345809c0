"""A worker as its supervisor sees it: the process, its start page, and what was decided about it."""

import os
import secrets
import signal

import trio

from ..proto import work
from ..proto.nonce import RANDOM_BYTES, nonce
from . import process, startpage
from .control import Exited, exited
from .generation import Generation
from .process import Pidfd, Stat
from .recycling import Wear
from .slots import Slot
from .startpage import StartPage, Token


class Child:
    """One worker, from the request to fork it until its end has been reported."""

    def __init__(self, slot: Slot, generation: Generation, wear: Wear) -> None:
        self.slot = slot
        self.generation = generation
        self.wear = wear
        self.nonce = nonce(secrets.token_hex(RANDOM_BYTES), generation.code)
        self.page_fd = startpage.create(slot.capacity)
        self.page = StartPage(self.page_fd, slot.capacity)
        self.pid = 0
        """0 until the zygote has said it."""
        self.is_told_to_end = False
        self.is_shutdown = False
        """Its end is the pool's doing, not its job's."""
        self.is_closed = False
        """Nothing of it is left to be done."""
        self.died_first = False
        """It had ended before its zygote did."""
        self.killed_for: Token | None = None
        """The attempt that a SIGKILL was meant for."""
        self.tree: list[Stat] = []
        """Its family as last seen while it lived."""
        self._pidfd: Pidfd | None = None
        self._kills = 0
        self._struck: Token | None = None

    @property
    def tokens(self) -> list[Token]:
        """The attempts that run in it, or were running when it ended."""
        return self.page.tokens()

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
        """It runs this attempt; or it runs nothing and is stopped, and so cannot even begin it."""
        if tokens := self.tokens:
            return token in tokens
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

    def strike(self, token: Token, reason: str, within_ms: int) -> None:
        """Have its handler stopped, if it is still that attempt, or once it comes to it. It is killed after so long."""
        # Written before it is looked at, so an attempt that begins in between finds it.
        self.page.kill(self._kills % self.page.slots, token, reason, within_ms)
        self._kills += 1
        # One with several slots looks at its kills only when it is told to, one with a single slot also
        # before each attempt: then the signal is for the attempt that runs, and for no other.
        if self.page.slots > 1 or token in self.tokens:
            self._struck = token
            self.send(process.STRIKE_SIGNAL)

    def recalled(self, recall: work.Recall) -> work.Recalled:
        """Let nothing begin that is recalled. Its worker has joined the fence, or it would have nothing ahead."""
        self.page.recall((recall.through[0], recall.through[1]))
        process.fence()
        started = self.page.token(0)
        return work.Recalled(self.nonce, recall.through, None if started is None else list(started))

    def report(
        self, status: int | None, number: int | None, usage: tuple[int, int], swept: bool
    ) -> work.Exited:
        """What the broker is told of its end; `usage` is peak memory in bytes and CPU time in ms."""
        mark = self.page.memory_mark(0)
        if number == process.STRIKE_SIGNAL and self.killed_for is None:
            # It had become another program, which does not know the signal: the strike was its end.
            self.killed_for = self._struck
        return work.Exited(
            worker=self.nonce,
            tokens=[list(token) for token in self.page.unconfirmed()],
            status=status,
            signal=number,
            kill_token=None if self.killed_for is None else list(self.killed_for),
            shutdown=self.is_shutdown,
            swept=swept,
            memory_peak_bytes=usage[0],
            cpu_ms=usage[1],
            over_memory=number is not None and self.killed_for is None and 0 < mark <= usage[0],
        )

    def close(self) -> None:
        """It has been reported; give everything back."""
        self.is_closed = True
        self.close_page_fd()
        self.page.close()
        if self._pidfd is not None:
            self._pidfd.close()
