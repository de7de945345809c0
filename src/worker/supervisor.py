"""The supervisor: keeps the slots of a pool filled, looks after its workers, and tells the broker.

Four loops in one nursery:

    zygote   start it, act on what it says; when it dies, take in its workers and start another
    slots    ask it for a worker whenever a slot is due
    broker   pool, heartbeats, reports (`pool_link`)
    signals  TERM or INT: drain

A worker's end goes one way, whatever caused it: the zygote reaps it and says so (or, when the zygote
itself has died, this process does), its slot is free at once, its tree is swept, and then the broker is
told, until it has answered. So nothing is handed out again while anything of the old attempt lives.

An attempt that is to end is struck first: its token goes into the start page, then the signal. After
the grace, if the page still names it, the worker is killed. The page is compared right before, so a
worker that has gone on to another job is left alone; should it go on in the last instant after all,
`kill_token` says for whom the kill was meant, and the other job is not charged.

Drain: every worker is told to finish; what still runs when the time is over is killed, as `shutdown`.
Copies of one signal that arrive within a moment (a terminal tells the whole group, a service manager
every process) are one request. A later one, meant, ends the wait.
"""

import math
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from typing import Any

import trio

from ..config.exits import Exit
from ..proto import limits, work
from . import control, process, slots, sweep
from .brood import Child
from .control import Exited, Failed, Forked, Kinds, Ready, Start, Unforked
from .pool_link import PoolLink, PoolRefusedError
from .slots import Slot, Slots
from .zygote_link import ZygoteLink

DRAIN_MS = 30 * limits.SECOND_MS
"""How long jobs may go on after a TERM. Service managers commonly wait longer than that."""

MOMENT_MS = 1 * limits.SECOND_MS
"""Signals closer together than this are copies of one request."""

SETTLE_MS = 2 * limits.SECOND_MS
"""How long the end of the pool waits for the broker to confirm the last reports."""

SILENCE_MS = 3 * limits.SECOND_MS
"""What a zygote has to say for at least so long, it will not say any more."""

ORPHAN_MS = 1 * limits.SECOND_MS
"""Workers whose zygote died are killed by the kernel; after this time by the supervisor."""


class Supervisor:
    """See the module. `say` writes one line of the log, `write` text of more lines."""

    def __init__(
        self,
        target: str,
        *,
        socket: str,
        workers: int,
        name: str,
        drain_ms: int,
        say: Callable[..., None],
        write: Callable[[bytes], None],
    ) -> None:
        self._start = Start(target, socket, secrets.token_bytes(limits.TICKET_BYTES), name)
        self._slots = Slots(workers)
        self._drain_ms = drain_ms
        self._say, self._write = say, write
        self._identity = process.identity(secrets.token_hex(8))
        self._children: dict[str, Child] = {}
        """Workers that live, or are being made, by nonce."""
        self._burying: dict[str, Child] = {}
        """Workers that have ended, while their trees are swept."""
        self._zygote: ZygoteLink | None = None
        self._is_ready = False
        """The zygote has imported the app."""
        self._kinds: list[Mapping[str, Any]] = []
        self._link = PoolLink(socket, self, say)
        self._link_runs = self._is_known = False
        self._is_draining = self._is_hurried = False
        self._ever_forked = self._ever_came_up = False
        self._changed = trio.Event()
        self._exit = Exit.OK
        self._nursery: trio.Nursery

    async def run(self) -> Exit:
        """Until it has been drained or cannot go on; the exit code."""
        process.become_subreaper()
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._obey_signals)
            self._nursery.start_soon(self._keep_zygote)
            self._nursery.start_soon(self._watch_zygote)
            self._nursery.start_soon(self._keep_slots_filled)
        self._reap_strays()
        if self._exit is Exit.OK and self._ever_forked and not self._ever_came_up:
            self._say("no_worker_came_up", app=self._start.target)
            return Exit.UNAVAILABLE
        return self._exit

    def _change(self) -> None:
        """Wake whoever waits for the state to change."""
        self._changed.set()
        self._changed = trio.Event()

    def _give_up(self, code: Exit) -> None:
        self._exit = code
        self._nursery.cancel_scope.cancel()

    # --- the zygote ----------------------------------------------------------------------------------

    async def _keep_zygote(self) -> None:
        deaths, died_at_ms = 0, -math.inf
        while True:
            await self._serve_zygote()
            if self._is_draining:
                # Its workers were all that was left to wait for.
                await trio.sleep_forever()
            now_ms = _now_ms()
            deaths = 1 if now_ms - died_at_ms > slots.HEALTHY_MS else deaths + 1
            died_at_ms = now_ms
            await trio.sleep(slots.delay_ms(deaths) / 1000)

    async def _serve_zygote(self) -> None:
        """One zygote, from its start to when the last of its workers has been taken in."""
        zygote = self._zygote = ZygoteLink(self._start)
        kinds: list[Mapping[str, Any]] = []
        try:
            while (packet := await zygote.receive()) is not None:
                self._take(*packet, kinds)
        finally:
            was_ready, self._is_ready, self._zygote = self._is_ready, False, None
            with trio.CancelScope(shield=True):
                await zygote.end(at_once=not was_ready)
                await self._take_in_orphans()
        self._say("zygote_died", pid=zygote.pid, code=zygote.code)
        if not was_ready and not self._is_draining:
            self._give_up(Exit.UNAVAILABLE)

    async def _watch_zygote(self) -> None:
        """Replace a zygote that is stopped or stuck: without it no end of a worker is ever reported."""
        overdue: set[str] = set()
        while True:
            await trio.sleep(SILENCE_MS / 1000)
            before, overdue = (
                overdue,
                {child.nonce for child in self._children.values() if child.is_overdue()},
            )
            if overdue & before and self._zygote is not None:
                self._say("zygote_hangs", pid=self._zygote.pid)
                for nonce in overdue:
                    self._children[nonce].died_first = True
                self._zygote.kill()

    def _take(self, message: control.Message, fd: int | None, kinds: list[Mapping[str, Any]]) -> None:
        if isinstance(message, Forked) and fd is not None:
            self._take_birth(message, fd)
        elif isinstance(message, Exited):
            self._take_end(self._children[message.nonce], message)
        elif isinstance(message, Unforked):
            self._take_failure(self._children[message.nonce], message.reason)
        elif isinstance(message, Kinds):
            kinds.extend(message.kinds)
        elif isinstance(message, Ready):
            self._take_ready(message, kinds)
        elif isinstance(message, Failed):
            self._say("app_does_not_import", app=self._start.target, reason=message.reason)
            self._write(message.report.encode() + b"\n")
            self._give_up(Exit.UNAVAILABLE)

    def _take_ready(self, message: Ready, kinds: list[Mapping[str, Any]]) -> None:
        if message.threads:
            names = ", ".join(message.threads)
            self._say(
                "app_has_threads", threads=names, warning="forking is unsafe: their locks may stay locked"
            )
        self._is_ready = True
        if not self._link_runs:
            self._link_runs = True
            self._kinds = kinds
            self._nursery.start_soon(self._keep_link)
        elif kinds != self._kinds:
            self._kinds = kinds
            self._link.reconnect()
        self._change()

    async def _take_in_orphans(self) -> None:
        """The zygote is gone: its workers are dying, and are this process's children now."""
        async with trio.open_nursery() as nursery:
            for child in list(self._children.values()):
                child.is_shutdown = not child.died_first
                nursery.start_soon(self._take_in, child)

    async def _take_in(self, child: Child) -> None:
        if not await child.wait_ended(ORPHAN_MS):
            child.send(signal.SIGKILL)
            await child.wait_ended(sweep.SWEEP_MS)
        self._take_end(child, child.reap())

    def _reap_strays(self) -> None:
        """Reap what orphans of the pool came down to this process; its own children are left alone."""
        own = {child.pid for child in self._children.values()}
        own.add(0 if self._zygote is None else self._zygote.pid)
        while True:
            try:
                # Only a look: the status of an own child is for whoever waits for it.
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid in own:
                return
            os.waitpid(found.si_pid, os.WNOHANG)

    # --- slots -----------------------------------------------------------------------------------------

    async def _keep_slots_filled(self) -> None:
        while True:
            changed, due_ms = self._changed, None
            # Not before the broker knows the pool: a worker's hello shows its ticket.
            if self._is_ready and self._is_known and not self._is_draining:
                for slot in self._slots.due(_now_ms()):
                    await self._fork(slot)
                due_ms = self._slots.next_due_ms()
            with trio.move_on_after(math.inf if due_ms is None else max(0, due_ms - _now_ms()) / 1000):
                await changed.wait()

    async def _fork(self, slot: Slot) -> None:
        if self._zygote is None:
            return
        child = Child(slot)
        self._children[child.nonce] = child
        self._slots.started(slot, child.nonce, _now_ms())
        self._ever_forked = True
        await self._zygote.fork(child.nonce, child.page_fd)

    def _take_birth(self, message: Forked, pidfd: int) -> None:
        child = self._children[message.nonce]
        child.born(message.pid, pidfd)
        if self._is_draining:
            child.finish()

    def _take_failure(self, child: Child, reason: str) -> None:
        del self._children[child.nonce]
        self._say("fork_failed", reason=reason)
        self._slots.exited(child.slot, _now_ms(), came_up=False, finished=False, blameless=False)
        child.close()
        self._change()

    def _take_end(self, child: Child, exited: Exited) -> None:
        """A worker has ended and was reaped."""
        del self._children[child.nonce]
        self._burying[child.nonce] = child
        token, page = child.token, child.page
        self._ever_came_up |= page.came_up
        running = None if token is None else f"{token[0]}.{token[1]}"
        self._say("worker_exited", pid=child.pid, status=exited.status, signal=exited.signal, running=running)
        looping = self._slots.exited(
            child.slot,
            _now_ms(),
            came_up=page.came_up,
            finished=page.finished_count > 0,
            blameless=child.is_blameless or (page.came_up and exited.status == 0),
        )
        if looping:
            self._say(
                "crash_loop",
                slot=child.slot.index,
                came_up=page.came_up,
                next_start_s=slots.BACKOFF_CAP_MS // 1000,
                hint="workers end as fast as they are started",
            )
        self._nursery.start_soon(self._bury, child, exited)
        self._change()

    async def _bury(self, child: Child, exited: Exited) -> None:
        swept = False
        with trio.CancelScope(shield=True):
            swept = await trio.to_thread.run_sync(sweep.sweep, child.pid, child.nonce, child.tree)
        usage = (exited.memory_peak_bytes, exited.cpu_ms)
        self._link.report(child.report(exited.status, exited.signal, usage, swept))
        if not swept:
            self._say("tree_not_swept", pid=child.pid)
        del self._burying[child.nonce]
        child.close()
        self._change()

    # --- the broker --------------------------------------------------------------------------------------

    async def _keep_link(self) -> None:
        try:
            await self._link.run()
        except PoolRefusedError as error:
            self._say("pool_refused", error=error)
            self._give_up(Exit.REFUSED)

    def pool_message(self) -> work.Pool:
        """Who this pool is, with every worker whose end the broker has not acknowledged."""
        start = self._start
        nonces = [*self._children, *self._burying, *self._link.unconfirmed]
        return work.Pool(
            limits.PROTOCOL_VERSION, start.name, start.ticket, self._identity, self._kinds, nonces
        )

    def nonces_seen_alive(self) -> list[str]:
        """The workers that a heartbeat may speak for. Also the moment to look around."""
        self._reap_strays()
        for child in self._children.values():
            busy = child.token is not None
            self._slots.observed(child.slot, came_up=child.page.came_up, busy=busy)
        return [child.nonce for child in self._children.values() if child.is_running()]

    def welcomed(self) -> None:
        """The broker knows the pool: now workers may come, and those that were cut off come back."""
        if self._is_known:
            for child in self._children.values():
                child.send(process.RECONNECT_SIGNAL)
        self._is_known = True
        self._change()

    def kill_wanted(self, kill: work.Kill) -> None:
        """The broker wants an attempt ended."""
        child = self._children.get(kill.worker)
        if child is not None:
            self._nursery.start_soon(self._end_attempt, child, kill)

    async def _end_attempt(self, child: Child, kill: work.Kill) -> None:
        token = (kill.token[0], kill.token[1])
        child.strike(token, kill.reason)
        await trio.sleep(kill.grace_ms / 1000)
        if not (child.nonce in self._children and child.is_stuck_in(token)):
            return
        tree = await trio.to_thread.run_sync(sweep.members, child.pid, child.nonce)
        # Again, for the look took a while; between this line and the signal there is no await.
        if child.nonce in self._children and child.is_stuck_in(token):
            child.tree, child.killed_for = tree, token
            self._kill(child, kill.reason)

    def _kill(self, child: Child, reason: str) -> None:
        self._say("worker_killed", pid=child.pid, reason=reason)
        self._slots.stopped(child.slot)
        child.send(signal.SIGKILL)

    # --- the end -------------------------------------------------------------------------------------------

    async def _obey_signals(self, task_status: trio.TaskStatus[None]) -> None:
        first_ms: int | None = None
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                if first_ms is None:
                    first_ms = _now_ms()
                    name = signal.Signals(number).name
                    self._say("drain_begins", signal=name, within_s=self._drain_ms / 1000)
                    self._nursery.start_soon(self._drain)
                elif _now_ms() - first_ms > MOMENT_MS:
                    self._is_hurried = True
                    self._change()

    async def _drain(self) -> None:
        self._is_draining = True
        for slot in self._slots:
            slot.wanted = False
            self._slots.quieted(slot)
        for child in self._children.values():
            child.finish()
        with trio.move_on_after(self._drain_ms / 1000):
            while self._children and not self._is_hurried:
                await self._changed.wait()
        for child in list(self._children.values()):
            child.tree = await trio.to_thread.run_sync(sweep.members, child.pid, child.nonce)
            child.is_shutdown = True
            self._kill(child, "shutdown")
        while self._children or self._burying:
            await self._changed.wait()
        with trio.move_on_after(SETTLE_MS / 1000):
            await self._link.wait_settled()
        self._say("drained")
        self._nursery.cancel_scope.cancel()


def _now_ms() -> int:
    return round(trio.current_time() * 1000)
