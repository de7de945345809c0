"""The supervisor: keeps the slots of a pool filled, looks after its workers, and tells the broker.

Its loops, all in one nursery:

    zygotes  start one, act on what it says, start another when it dies (`generation`, `reloading`)
    slots    ask for a worker whenever a slot is due
    broker   pool, heartbeats, reports (`pool_link`)
    looks    twice a second: end attempts that fell silent (`silence`), replace worn workers (`recycling`)
    heirs    tell a worker to end when the one that replaces it takes jobs
    files    reload when a file of the app changes, if that is wanted (`watching`)
    signals  TERM or INT: drain; HUP: reload

A worker's end goes one way, whatever caused it: the zygote reaps it and says so (or, when the zygote
itself has died, this process does), its slot is free at once, its tree is swept, and then the broker is
told, until it has answered. So nothing is handed out again while anything of the old attempt lives.

An attempt that is to end is struck first: its token goes into the start page, then the signal. After
the grace, if the page still names it, the worker is killed. The page is compared right before, so a
worker that has gone on to another job is left alone; should it go on in the last instant after all,
`kill_token` says for whom the kill was meant, and the other job is not charged.

There may be several zygotes at once, while new code comes in and until old workers have finished. Each has its
own workers, and what is said here of the zygote holds for each with them.

Drain: every worker is told to finish; what still runs when the time is over is killed, as `shutdown`.
Copies of one signal that arrive within a moment (a terminal tells the whole group, a service manager
every process) are one request. A later one, meant, ends the wait.
"""

import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Collection, Sequence

import trio

from ..config.exits import Exit
from ..proto import limits, work
from . import process, scratch, slots, sweep
from .brood import Child
from .control import Exited, Fork, Forked, Start, Unforked
from .flavour import Flavour
from .generation import Generation, Generations
from .output import OUTPUT_DEFAULT, OutputRules
from .pool_link import PoolLink, PoolRefusedError
from .recycler import Recycler
from .recycling import NEVER, Recycling
from .reloading import Reloading
from .silence import LOOK_MS, Silence
from .slots import Slot, Slots
from .terminal import Terminal
from .watching import Watching

DRAIN_MS = limits.DRAIN_MS_DEFAULT

HEADING_S = 0.01
"""A worker that is struck writes down where it stands; the line that says why has so long to be there first."""

MOMENT_MS = 200
"""Signals closer together than this are copies of one request. `stoker up` counts by a little more, and
so passes on nothing that would not count here."""

SETTLE_MS = 2 * limits.SECOND_MS
"""How long the end of the pool waits for the broker to confirm the last reports."""

ORPHAN_MS = 1 * limits.SECOND_MS
"""Workers whose zygote died are killed by the kernel; after this time by the supervisor."""

HEIR_MS = 20
"""Between two looks whether a worker that is to replace another takes jobs."""


class Supervisor:
    """See the module. `say` writes one line of the log, `write` text of more lines."""

    def __init__(
        self,
        target: str,
        *,
        socket: str,
        workers: int,
        async_workers: int,
        async_slots: int,
        name: str,
        queues: Sequence[tuple[str, int]] = (),
        prefetch: int = 0,
        drain_ms: int,
        memory_max: int = 0,
        output: OutputRules = OUTPUT_DEFAULT,
        recycling: Recycling = NEVER,
        watch: bool = False,
        commands: Sequence[str] | None = None,
        data: bytes = b"",
        low_water_bytes: int = 0,
        say: Callable[..., None],
        write: Callable[[bytes], None],
    ) -> None:
        ticket = secrets.token_bytes(limits.TICKET_BYTES)
        self._start = Start(
            target,
            socket,
            ticket,
            name,
            memory_max,
            scratch.base(),
            queues,
            *output,
            watch=watch,
            commands=commands,
            data=data,
            low_water_bytes=low_water_bytes,
            prefetch=prefetch,
        )
        wanted = {
            Flavour.PLAIN: (workers, 1),
            Flavour.TRIO: (async_workers, async_slots),
            Flavour.ASYNCIO: (async_workers, async_slots),
        }
        for program in commands or ():
            if not os.path.exists(program):
                say("no_such_program", program=program, hint="no job can run it")
        self._slots = Slots()
        self._generations = Generations(self._start, self, say)
        self._reloading = Reloading(
            target, self._generations, self._slots, wanted, self, say=say, write=write
        )
        self._recycler = Recycler(recycling, self._slots, self._reloading, say)
        self._drain_ms = drain_ms
        self._say = say
        self._terminal = Terminal()
        self._identity = process.identity(secrets.token_hex(8))
        self._children: dict[str, Child] = {}
        """Workers that live, or are being made, by nonce."""
        self._burying: dict[str, Child] = {}
        """Workers that have ended, while their trees are swept."""
        self._link = PoolLink(socket, self, say)
        self._link_runs = self._is_known = False
        self.is_draining = self._is_hurried = False
        self._ever_forked = self._ever_came_up = False
        self._changed = trio.Event()
        self._exit = Exit.OK
        self._nursery: trio.Nursery

    async def run(self) -> Exit:
        """Until it has been drained or cannot go on; the exit code."""
        process.become_subreaper()
        left_count = await trio.to_thread.run_sync(sweep.sweep_strays, self._start.socket)
        if left_count:
            self._say("strays_killed", count=left_count, hint="all of stoker had been killed at once")
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._obey_signals)
            self._reloading.begin(self._nursery)
            self._nursery.start_soon(self._generations.watch)
            self._nursery.start_soon(self._keep_slots_filled)
            self._nursery.start_soon(self._look_at_workers)
            self._nursery.start_soon(self._watch_heirs)
            if self._start.watch:
                self._nursery.start_soon(Watching(self._reloading).run)
        self._reap_strays()
        if self._exit is Exit.OK and self._ever_forked and not self._ever_came_up:
            self._say("no_worker_came_up", app=self._start.target)
            return Exit.UNAVAILABLE
        return self._exit

    def change(self) -> None:
        """Wake whoever waits for the state to change."""
        self._changed.set()
        self._changed = trio.Event()

    def give_up(self, code: Exit = Exit.UNAVAILABLE) -> None:
        """End the pool."""
        self._exit = code
        self._nursery.cancel_scope.cancel()

    # --- zygotes and their code ------------------------------------------------------------------------

    def heard(self, message: Forked | Unforked | Exited, fd: int | None) -> None:
        """News of a worker, from its zygote."""
        child = self._children[message.nonce]
        if isinstance(message, Exited):
            self._take_end(child, message)
        elif isinstance(message, Unforked):
            self._take_failure(child, message.reason)
        elif fd is not None:
            self._take_birth(child, message.pid, fd)

    def imported(self, generation: Generation) -> None:
        """A zygote has imported the app."""
        self._reloading.imported(generation)

    def ended(self, generation: Generation) -> None:
        """A zygote has ended by itself."""
        self._reloading.ended(generation)

    def overdue(self) -> set[str]:
        """Workers of which their zygotes have something to say."""
        return {child.nonce for child in self._children.values() if child.is_overdue()}

    def died_first(self, nonces: Collection[str]) -> None:
        """These workers had ended before their zygote, which did not say so."""
        for nonce in nonces:
            self._children[nonce].died_first = True

    def has_come_up(self, generation: Generation) -> bool:
        """Whether any worker of it has entered its loop."""
        return any(self._children[nonce].page.came_up for nonce in generation.nonces)

    async def take_in(self, nonces: Sequence[str]) -> None:
        """Their zygote is gone: these workers are dying, and are this process's children now."""
        async with trio.open_nursery() as nursery:
            for child in [self._children[nonce] for nonce in nonces]:
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
        own |= {generation.link.pid for generation in self._generations.living}
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
            if self._is_known and not self.is_draining:
                for slot in self._slots.due(_now_ms(), self._may_start):
                    await self._fork(slot)
                due_ms = self._slots.next_due_ms(self._may_start)
            with trio.move_on_after(math.inf if due_ms is None else max(0, due_ms - _now_ms()) / 1000):
                await changed.wait()

    def _may_start(self, slot: Slot) -> bool:
        # All of them have to fit into one message, those that are replaced as well.
        count = len(self._children) + len(self._burying) + len(self._link.unconfirmed)
        return count < limits.LIST_ITEMS_MAX and self._reloading.source_of(slot) is not None

    async def _fork(self, slot: Slot) -> None:
        generation = self._reloading.source_of(slot)
        # While others were asked for, this one may have become due no longer.
        if generation is None or not self._may_start(slot) or not slot.is_due(_now_ms()):
            return
        child = Child(slot, generation, self._recycler.wear())
        self._children[child.nonce] = child
        generation.nonces.add(child.nonce)
        self._slots.started(slot, child.nonce, _now_ms())
        self._ever_forked = True
        await generation.link.fork(Fork(child.nonce, slot.flavour, slot.capacity), child.page_fd)

    async def _watch_heirs(self) -> None:
        """Whoever is replaced ends only when the one that replaces it can take jobs."""
        while True:
            changed, waits = self._changed, self._reloading.is_waiting and not self.is_draining
            for child in list(self._children.values()) if waits else ():
                if child.page.was_welcomed and not child.slot.is_up:
                    self._reloading.came_up(child.slot)
            with trio.move_on_after(HEIR_MS / 1000 if waits else math.inf):
                await changed.wait()

    def finish(self, slot: Slot) -> None:
        """Have the worker of a slot finish what it runs and end, if there is one."""
        child = self._children.get(slot.nonce)
        if child is not None:
            self._slots.quieted(slot)
            child.finish()

    def call_off(self, slot: Slot) -> None:
        """The same for a worker whose code was given up."""
        child = self._children.get(slot.nonce)
        if child is None or child.page.came_up:
            self.finish(slot)
        else:
            # It may hang in a start hook, where it would not hear of it.
            child.is_shutdown = True
            self._kill(child, "code was given up")

    def _take_birth(self, child: Child, pid: int, pidfd: int) -> None:
        child.born(pid, pidfd)
        if self.is_draining or child.is_told_to_end:
            child.finish()
        elif child.is_shutdown:
            child.send(signal.SIGKILL)

    def _take_failure(self, child: Child, reason: str) -> None:
        self._forget(child)
        self._say("fork_failed", reason=reason)
        self._slots.exited(child.slot, _now_ms(), came_up=False, finished=False, blameless=False)
        if child.slot.is_trial:
            self._reloading.trial_died()
        child.close()
        self.change()

    def _forget(self, child: Child) -> None:
        del self._children[child.nonce]
        child.generation.nonces.discard(child.nonce)
        child.generation.released()

    def _take_end(self, child: Child, exited: Exited) -> None:
        """A worker has ended and was reaped."""
        self._forget(child)
        self._burying[child.nonce] = child
        page = child.page
        self._ever_came_up |= page.came_up
        running = ",".join(f"{token[0]}.{token[1]}" for token in child.tokens) or None
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
        if child.slot.is_trial and not (page.came_up or child.is_blameless):
            self._reloading.trial_died()
        self.change()

    async def _bury(self, child: Child, exited: Exited) -> None:
        swept = False
        with trio.CancelScope(shield=True):
            swept = await trio.to_thread.run_sync(sweep.sweep, child.pid, child.nonce, child.tree)
        usage = (exited.memory_peak_bytes, exited.cpu_ms)
        self._link.report(child.report(exited.status, exited.signal, usage, swept))
        if not swept:
            self._say("tree_not_swept", pid=child.pid)
        with trio.CancelScope(shield=True):
            # Only now that nobody is left who could put something there.
            directory = scratch.path_of(child.nonce, self._start.scratch)
            await trio.to_thread.run_sync(scratch.remove, directory)
        del self._burying[child.nonce]
        child.close()
        self.change()

    # --- the broker --------------------------------------------------------------------------------------

    async def _keep_link(self) -> None:
        try:
            await self._link.run()
        except PoolRefusedError as error:
            self._say("pool_refused", error=error)
            self.give_up(Exit.REFUSED)

    def tell(self) -> None:
        """Say `pool` to the broker, anew if it has been said."""
        if self._link_runs:
            self._link.tell()
        else:
            self._link_runs = True
            self._nursery.start_soon(self._keep_link)

    async def declare(self) -> None:
        """Say `pool` anew, and return when the broker knows it; PoolRefusedError if it will not."""
        await self._link.declare()

    def pool_message(self) -> work.Pool:
        """Who this pool is, with every worker whose end the broker has not acknowledged."""
        start, reloading = self._start, self._reloading
        return work.Pool(
            version=limits.PROTOCOL_VERSION,
            name=start.name,
            ticket=start.ticket,
            identity=self._identity,
            kinds=reloading.declared.kinds,
            workers=[*self._children, *self._burying, *self._link.unconfirmed],
            code=reloading.code,
            reload_state=reloading.state or None,
            reload_mono_ms=reloading.began_ms,
            reload_error=reloading.error,
        )

    def nonces_seen_alive(self) -> list[str]:
        """The workers that a heartbeat may speak for. Also the moment to look around."""
        self._reap_strays()
        for child in self._children.values():
            busy = bool(child.tokens)
            self._slots.observed(child.slot, came_up=child.page.came_up, busy=busy)
        return [child.nonce for child in self._children.values() if child.is_running()]

    def welcomed(self) -> None:
        """The broker knows the pool: now workers may come, and those that were cut off come back."""
        if self._is_known:
            for child in self._children.values():
                child.send(process.RECONNECT_SIGNAL)
        self._is_known = True
        self.change()

    def kill_wanted(self, kill: work.Kill) -> None:
        """The broker wants an attempt ended."""
        child = self._children.get(kill.worker)
        if child is not None:
            self._nursery.start_soon(self._end_attempt, child, kill)

    def recall_wanted(self, recall: work.Recall) -> work.Recalled | None:
        """The broker wants back what has not begun; None if there is no such worker."""
        child = self._children.get(recall.worker)
        return None if child is None or child.is_closed else child.recalled(recall)

    async def _look_at_workers(self) -> None:
        """End attempts that fell silent, of which the broker hears as of any other end; replace worn workers."""
        silence = Silence()
        while True:
            await trio.sleep(LOOK_MS / 1000)
            now_ms = time.monotonic_ns() // 1_000_000
            overdue = [(c.nonce, token) for c in self._children.values() for token in c.page.silent(now_ms)]
            for nonce, token in silence.look(overdue):
                self.kill_wanted(work.Kill(nonce, token, "silent", limits.KILL_GRACE_MS))
            if await self._recycler.look(self._children.values()):
                self.change()

    async def _end_attempt(self, child: Child, kill: work.Kill) -> None:
        token = (kill.token[0], kill.token[1])
        self._say("attempt_struck", pid=child.pid, token=f"{token[0]}.{token[1]}", reason=kill.reason)
        await trio.sleep(HEADING_S)
        if child.nonce in self._children:
            child.strike(token, kill.reason, kill.grace_ms)
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
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP and not self._terminal.has_hung_up():
                    self._reloading.request("SIGHUP")
                elif number == signal.SIGHUP and not self._terminal.is_heeded:
                    continue
                elif first_ms is None:
                    first_ms = _now_ms()
                    name = signal.Signals(number).name
                    self._say("drain_begins", signal=name, within_s=self._drain_ms / 1000)
                    self._nursery.start_soon(self._drain)
                elif _now_ms() - first_ms > MOMENT_MS and not self._is_hurried:
                    self._say("drain_hurried", signal=signal.Signals(number).name)
                    self._is_hurried = True
                    self.change()

    async def _drain(self) -> None:
        self.is_draining = True
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
