"""The broker's shell for a test: real sockets, real core, journal in memory, no thread, one process.

    async with serving(path) as shell:
        peer = await shell.connect()
        await peer.ask(Enqueue("a", "send", b""))

The journal's work is done by a `SteppedRunner`, so a test can hold it back like a slow disk. Lines of
the log are in `shell.lines`.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio
from support.stepped_runner import SteppedRunner
from support.wire_peer import DEADLINE_S, WirePeer

from stoker.broker import clock
from stoker.broker.chores import Chores
from stoker.broker.core.events import Now
from stoker.broker.core.rules import Rules
from stoker.broker.core.step import Core
from stoker.broker.driver import Driver
from stoker.broker.files import Ballast
from stoker.broker.journal import Retention
from stoker.broker.listener import Listener
from stoker.broker.log import Log
from stoker.broker.memory import MemoryJournal
from stoker.broker.notify import Notifier
from stoker.broker.owners import Owners
from stoker.broker.socket import ListeningSocket
from stoker.broker.storage import Storage
from stoker.proto import limits

BALLAST_BYTES = 4096

T = TypeVar("T")


class LogLines(Log):
    """Keeps lines instead of writing them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def _write(self, line: bytes) -> None:
        self.lines.append(line.decode("ascii").split(" ", 2)[2].rstrip())


class SkewedClock:
    """The real time, plus what a test adds to it; or the time at which it was stopped."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._stopped_at: Now | None = None

    def stop(self) -> None:
        """No time passes any more."""
        self._stopped_at = clock.now()

    def __call__(self) -> Now:
        now = self._stopped_at or clock.now()
        return Now(now.mono_ms + self.ahead_ms, now.boot_ms + self.ahead_ms, now.wall_ms + self.ahead_ms)


def _nothing_to_do(_: Now) -> int:
    return limits.WALL_RECHECK_MS


class Shell:
    """A driver that serves, and the pieces it was made of."""

    def __init__(
        self,
        path: str,
        *,
        journal: MemoryJournal | None = None,
        rules: Rules | None = None,
        capacity: int = 100,
        low_water_bytes: int = 0,
        has_chores: bool = True,
    ) -> None:
        """Without chores only what peers say is work for the journal."""
        self.path = path
        self.journal = journal or MemoryJournal()
        self.runner = SteppedRunner(self.journal)
        self.log = LogLines()
        self.clock = SkewedClock()
        directory = str(Path(path).parent)
        now = self.clock()
        recovered = self.journal.load(boot_id="boot", boot_ms=now.boot_ms, wall_ms=now.wall_ms)
        self.core = Core(rules or Rules(), epoch=recovered.epoch, now=now, chance=lambda: 0.5)
        retention = Retention(limits.DAY_MS, 1000, limits.DAY_MS, 1000)
        ballast = Ballast(directory, BALLAST_BYTES)
        self.storage = Storage(directory, ballast, retention, low_water_bytes, self.log)
        self.driver = Driver(
            self.core,
            self.runner,
            self.storage,
            clock=self.clock,
            log=self.log,
            snapshots=os.path.join(directory, "snapshots"),
            about={"pid": os.getpid()},
        )
        self.listener = Listener(
            ListeningSocket(path),
            self.driver.poller,
            self.log,
            self.driver.deadlines,
            capacity=capacity,
            own_uid=os.geteuid(),
            on_input=self.driver.received,
            on_evicted=self.driver.end,
        )
        self._peers: list[WirePeer] = []
        chores = self._chores().pass_time if has_chores else _nothing_to_do
        self.driver.serve(self.listener, chores)

    def _chores(self) -> Chores:
        return Chores(
            self.core,
            self.driver.step,
            self.runner,
            self.driver.committer,
            self.driver.questions,
            self.storage,
            Owners(),
            Notifier({}),
            self.log,
            self.driver.commit_failed,
        )

    @property
    def lines(self) -> list[str]:
        return self.log.lines

    async def connect(self) -> WirePeer:
        peer = await WirePeer.connect(self.path)
        self._peers.append(peer)
        return peer

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.driver.close()


@asynccontextmanager
async def serving(
    path: str,
    *,
    journal: MemoryJournal | None = None,
    rules: Rules | None = None,
    capacity: int = 100,
    low_water_bytes: int = 0,
    has_chores: bool = True,
) -> AsyncGenerator[Shell]:
    """A shell that runs while the block does."""
    shell = Shell(
        path,
        journal=journal,
        rules=rules,
        capacity=capacity,
        low_water_bytes=low_water_bytes,
        has_chores=has_chores,
    )
    async with AsyncExitStack() as stack:
        stack.callback(shell.close)
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(shell.driver.run)
        yield shell
        nursery.cancel_scope.cancel()


async def wait_for(shell: Shell, event: str) -> str:
    """The first line of the log that has this event."""

    async def said() -> str | None:
        return next((line for line in shell.lines if line.split(" ")[0] == event), None)

    return await eventually(said, f"the log says {event}")


async def eventually(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """The first true value of `look`; AssertionError naming `what` when the deadline passes."""
    with trio.move_on_after(DEADLINE_S):
        while True:
            value = await look()
            if value:
                return value
            await trio.sleep(0.005)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")
