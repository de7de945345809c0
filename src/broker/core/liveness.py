"""Dead, disconnected or hung: three verdicts on a worker instead of one timeout.

**Dead.** The pidfd of the peer fired, and everything it had sent before was handled. A supervised
worker's jobs wait for the supervisor's `exited`, which says which attempt the process was running
and that its tree is gone; then they are free. A supervisor that stays silent beyond its grace, or a
raw worker that has none: `lost`.

**Disconnected.** End of file while the process lives. Its leases stay for the reconnect grace; a
`hello` that comes back says what it holds, and a lease it came back without is given back. In text
mode a lease ends with its connection.

**Hung.** Alive, but silent beyond its lease or over its time limit. For a supervised worker the
process is killed first and the job stays leased until its end is reported, so it never runs twice
at once. A raw worker has nobody to kill it: its lease ends by the clock, and tokens fence it.

A dead supervisor is not replaced for its workers: they end within two seconds, get nothing new
meanwhile, and their jobs are freed as `shutdown`. Their zygote kills what they have started before it
kills them, so a worker's death at its hand is the sign that nothing is left. Of one that died before that,
nobody can tell; its jobs are free when the zygote has had its time. One that does not
end, because its zygote is stopped, say, is killed by the broker.
"""

from collections.abc import Collection, Iterable

from ...proto import limits, messages, work
from ...proto.messages import Message
from ...proto.model import Outcome
from . import effects as fx
from .leasing import Leasing
from .memory import Memory
from .prefetch import Prefetch
from .workers import Lease, Peer, Pool, Registry, Worker

BACK_MS = 2 * limits.SECOND_MS
"""A worker that lives is back by then: it tries once a second at least."""

DOOM_MS = limits.SUPERVISOR_DEATH_MS + limits.SECOND_MS
"""When a worker is still there so long after its supervisor died, nobody is left who would end it."""

REPORT_CALLERS_MAX = 8
"""A supervisor repeats a report on each new connection; so many of them are answered."""


class Liveness:
    """Verdicts on workers and supervisors, and the deadlines of leases."""

    def __init__(self, memory: Memory, registry: Registry, leasing: Leasing, prefetch: Prefetch) -> None:
        self._memory = memory
        self._registry = registry
        self._leasing = leasing
        self._prefetch = prefetch

    # --- connections come and go --------------------------------------------------------------------

    def connected(self, connection: int, uid: int, pid: int, is_text: bool) -> None:
        """A peer was accepted; what it is it will say itself."""
        self._registry.peers[connection] = Peer(connection, uid, pid, is_text)

    def disconnected(self, connection: int) -> None:
        """End of file. The process may live."""
        peer = self._registry.peers.pop(connection, None)
        if peer is None:
            return
        if peer.worker is not None and peer.worker.connection == connection:
            self._worker_disconnected(peer.worker)
        if peer.pool is not None and peer.pool.connection == connection:
            peer.pool.connection = None
            if not (peer.pool.dead or self._registry.of_pool(peer.pool)):
                self._memory.log("pool_left", pool=peer.pool.name, pid=peer.pool.pid)
            peer.pool.gone_by_ms = self._memory.now.mono_ms + self._memory.rules.supervisor_grace_ms
            self._leasing.check_by(peer.pool.gone_by_ms)
            self._forget_pool_if_over(peer.pool)

    def _worker_disconnected(self, worker: Worker) -> None:
        worker.connection = None
        self._registry.refresh(worker)
        if worker.dead:
            return
        if worker.report is not None:
            self._apply_report(worker, worker.report)
            return
        if worker.is_text:
            self._end_all(worker, Outcome.LOST, "its text connection ended")
        if not (worker.leases or (worker.ended and worker.can_return)):
            # Nothing would need it back; if it returns it says hello as new.
            self._forget(worker)
            return
        # Also without leases: it may not have seen the answer to its last ack, and will repeat it.
        worker.back_by_ms = self._memory.now.mono_ms + self._memory.rules.reconnect_grace_ms
        for lease in worker.leases.values():
            lease.renew(worker.back_by_ms)
        self._leasing.check_by(worker.back_by_ms)

    def peer_exited(self, connection: int) -> None:
        """The process behind a connection is dead."""
        peer = self._registry.peers.get(connection)
        if peer is None:
            return
        if peer.worker is not None and peer.worker.connection == connection:
            self.worker_died(peer.worker)
        if peer.pool is not None and peer.pool.connection == connection:
            self.pool_died(peer.pool)

    def worker_died(self, worker: Worker, *, of_another_boot: bool = False) -> None:
        """A worker's process is proved dead: free its jobs, now or when nothing of it can be left."""
        memory = self._memory
        worker.dead = True
        self._registry.refresh(worker)
        pool = self._registry.pool_of(worker)
        if worker.report is not None:
            self._apply_report(worker, worker.report)
        elif not worker.leases:
            self._forget(worker)
        elif not worker.is_supervised:
            self._end_all(worker, Outcome.LOST, "the worker died without a report")
            self._forget(worker)
        elif pool is None or not pool.dead:
            self._report_by(worker, memory.now.mono_ms + memory.rules.supervisor_grace_ms)
        elif of_another_boot or memory.now.mono_ms >= pool.died_ms + limits.SUPERVISOR_DEATH_TERM_MS:
            self._end_unreported(worker)
        else:
            # Something else than its zygote ended it, which still has to sweep.
            self._report_by(worker, pool.died_ms + DOOM_MS)

    def _report_by(self, worker: Worker, mono_ms: int) -> None:
        worker.report_by_ms = mono_ms
        self._leasing.check_by(mono_ms)

    def pool_died(self, pool: Pool, *, of_another_boot: bool = False) -> None:
        """A supervisor's process is proved dead: its workers will be, and get nothing more."""
        pool.dead, pool.died_ms = True, self._memory.now.mono_ms
        workers = self._registry.of_pool(pool)
        # One that saw its last worker off before has ended in order.
        event = "supervisor_died" if workers else "pool_left"
        self._memory.log(event, pool=pool.name, pid=pool.pid)
        for worker in workers:
            self.doom(worker)
            if worker.dead and of_another_boot:
                self._end_unreported(worker)
            elif worker.dead:
                # It may have been killed in the middle of the sweep, which its zygote has to do now.
                self._report_by(worker, pool.died_ms + DOOM_MS)
        self._forget_pool_if_over(pool)

    def doom(self, worker: Worker) -> None:
        """Its supervisor is dead: it gets nothing new, and has a moment to end."""
        worker.doomed_by_ms = self._memory.now.mono_ms + DOOM_MS
        self._leasing.check_by(worker.doomed_by_ms)
        self._registry.refresh(worker)

    def _forget(self, worker: Worker) -> None:
        self._registry.forget_worker(worker)
        pool = self._registry.pool_of(worker)
        if pool is not None:
            self._forget_pool_if_over(pool)

    def _forget_pool_if_over(self, pool: Pool) -> None:
        gone = pool.connection is None and (pool.dead or pool.gone_by_ms <= self._memory.now.mono_ms)
        if gone and not self._registry.of_pool(pool):
            self._registry.pools.pop(pool.ticket, None)

    # --- reports of supervisors -----------------------------------------------------------------------

    def exited(self, peer: Peer, request: int, message: work.Exited) -> None:
        """A supervisor's report. It counts for workers of its ticket, and once the pidfd agrees.

        It is answered when it has been applied: until then the supervisor keeps it, and repeats it to
        the next broker should this one die.
        """
        if peer.pool is None:
            self._memory.refuse(peer.connection, request, "wrong_state", "exited: say `pool` first")
            return
        worker = self._registry.by_nonce(peer.pool.ticket, message.worker)
        if worker is None:
            self._memory.answer(peer.connection, request, messages.Done())
            return
        worker.report_callers.append((peer.connection, request))
        del worker.report_callers[:-REPORT_CALLERS_MAX]
        if worker.connection is not None and not worker.dead:
            # The report outran the pidfd; both are on their way, and the pidfd is the proof.
            worker.report = message
        else:
            self._apply_report(worker, message)

    def _apply_report(self, worker: Worker, report: work.Exited) -> None:
        worker.dead, worker.report = True, None
        running = {(token[0], token[1]) for token in report.tokens} & worker.leases.keys()
        if not report.swept:
            self._memory.log("tree_not_swept", worker=worker.identity, pid=worker.pid)
        for lease in list(worker.leases.values()):
            if lease.token not in running:
                self._leasing.never_started(lease)
                continue
            outcome, reason = _verdict(lease, report)
            if outcome is Outcome.CRASH and len(running) > 1:
                reason = f"{reason} while it ran {len(running)} jobs, and nobody knows which did it"
                self._leasing.suspect(lease, reason, report)
            else:
                self._leasing.end(lease, outcome, reason=reason, exited=report)
        for caller in worker.report_callers:
            self._memory.answer(*caller, messages.Done())
        self._forget(worker)

    def recalled(self, peer: Peer, request: int, message: work.Recalled) -> None:
        """A supervisor's answer to a recall."""
        if peer.pool is None:
            self._memory.refuse(peer.connection, request, "wrong_state", "recalled: say `pool` first")
            return
        worker = self._registry.by_nonce(peer.pool.ticket, message.worker)
        if worker is not None and not worker.dead:
            started = None if message.started is None else (message.started[0], message.started[1])
            self._leasing.taken_back(worker, (message.through[0], message.through[1]), started)
        self._memory.answer(peer.connection, request, messages.Done())

    # --- heartbeats ---------------------------------------------------------------------------------------

    def heartbeat(self, peer: Peer, request: int, message: work.Heartbeat) -> None:
        """Renew leases; the answer carries wishes. At once if there are none to wait for."""
        memory = self._memory
        # Not `stop` when the broker ends: workers outlive it, and go on with the next one.
        wishes = work.Wishes(quiet=memory.draining)
        if peer.worker is not None:
            stale = [token for token in message.tokens if not self._renew_own(peer.worker, token)]
            wishes = wishes._replace(cancel=stale)
        if peer.pool is not None:
            for nonce in message.workers:
                self._renew_worker(peer.pool, nonce)
            peer.pool.heartbeat_ms = self.heartbeat_ms(peer.pool)
            wishes = wishes._replace(heartbeat_ms=peer.pool.heartbeat_ms)
        memory.answer(peer.connection, request, wishes, now=not wishes.cancel)

    def _renew_own(self, worker: Worker, token: messages.Token) -> bool:
        """Renew one lease of a worker; False if it is not its own any more, or shall be stopped."""
        lease = worker.leases.get((token[0], token[1]))
        if lease is None:
            return False
        lease.renew(self._memory.now.mono_ms + lease.lease_ms)
        return lease.kill is None

    def _renew_worker(self, pool: Pool, nonce: str) -> None:
        worker = self._registry.by_nonce(pool.ticket, nonce)
        if worker is not None:
            for lease in worker.leases.values():
                lease.renew(self._memory.now.mono_ms + lease.lease_ms)

    def heartbeat_ms(self, pool: Pool | None) -> int:
        """How often to beat: a quarter of the shortest lease in use, at most `heartbeat_ms_max`."""
        rules = self._memory.rules
        leases = [rules.shortest_lease_ms]
        leases += [policy["lease_ms"] for _, policy in self._memory.kinds.values() if "lease_ms" in policy]
        leases += [
            lease.lease_ms
            for lease in self._leasing.leases.values()
            if pool is None or lease.worker.ticket == pool.ticket
        ]
        return min(rules.heartbeat_ms_max, max(min(leases) // limits.HEARTBEAT_SHARE_OF_LEASE, 1))

    def stalled(self, stalled_ms: int) -> None:
        """The broker itself did not run: nobody is late by that, and all get a full interval to be heard.

        Time limits move as well: a job or a kill may have been among what the broker did not send.
        """
        mono, rules = self._memory.now.mono_ms, self._memory.rules
        for lease in self._leasing.leases.values():
            lease.renew(mono + max(lease.lease_ms, rules.heartbeat_ms_max))
            lease.limit_ms += stalled_ms
            if lease.kill_ms:
                lease.kill_ms += stalled_ms
        self._prefetch.excuse()
        for worker in self._registry.workers.values():
            if worker.back_by_ms:
                worker.back_by_ms = max(worker.back_by_ms, mono + rules.reconnect_grace_ms)
            if worker.report_by_ms:
                worker.report_by_ms += stalled_ms

    def held_up(self, pushes: Iterable[Message]) -> None:
        """These leave only now: their time counts from now. (A job that is to be ended at once is not begun.)"""
        for message in pushes:
            if not isinstance(message, work.Job | work.Kill):
                continue
            lease = self._leasing.leases.get((message.token[0], message.token[1]))
            if lease is None:
                continue
            if isinstance(message, work.Kill):
                self._wait_for_kill(lease, message.grace_ms)
            elif lease.kill is None:
                self._leasing.begin(lease, message.time_limit_ms)
        self._prefetch.excuse()

    # --- deadlines ---------------------------------------------------------------------------------------

    def time_passed(self) -> None:
        """Verdicts that are due; only when one may be."""
        self._prefetch.time_passed()
        leasing, mono = self._leasing, self._memory.now.mono_ms
        if leasing.check_ms is None or leasing.check_ms > mono:
            return
        for worker in list(self._registry.workers.values()):
            self._check_worker(worker, mono)
        for lease in list(leasing.leases.values()):
            self._check_lease(lease, mono)
        for pool in list(self._registry.pools.values()):
            self._forget_pool_if_over(pool)
        leasing.check_ms = min(self._instants(mono), default=None)

    def _instants(self, mono: int) -> list[int]:
        instants: list[int] = []
        for lease in self._leasing.leases.values():
            if lease.worker.dead or lease.waits:
                continue
            if lease.kill is None:
                instants += (lease.deadline_ms, self._limit_of(lease))
            else:
                instants.append(lease.kill_ms)
        for worker in self._registry.workers.values():
            ends = (worker.back_by_ms, worker.report_by_ms, worker.doomed_by_ms)
            instants += [at for at in ends if at > mono]
        instants += [pool.gone_by_ms for pool in self._registry.pools.values() if pool.gone_by_ms > mono]
        return instants

    def _check_worker(self, worker: Worker, mono: int) -> None:
        if worker.dead:
            if worker.report_by_ms and worker.report_by_ms <= mono:
                self._end_unreported(worker)
        elif worker.connection is not None and 0 < worker.doomed_by_ms <= mono:
            self._memory.effects.append(fx.KillPeer(worker.connection))
            self.doom(worker)
        elif worker.connection is None and worker.back_by_ms and worker.back_by_ms <= mono:
            worker.back_by_ms = 0
            if not worker.leases:
                self._forget(worker)
            elif worker.is_supervised:
                for lease in list(worker.leases.values()):
                    self.kill(lease, Outcome.LOST)
            else:
                self._end_all(worker, Outcome.LOST, "the worker disconnected and did not come back")
                self._forget(worker)

    def _end_unreported(self, worker: Worker) -> None:
        pool = self._registry.pool_of(worker)
        if pool is not None and pool.dead:
            self._end_all(worker, Outcome.SHUTDOWN, "its supervisor died")
        elif pool is not None and pool.connection is not None:
            self._end_all(worker, Outcome.LOST, "the worker died, and its supervisor did not report it")
        else:
            # Both are gone, and whatever took the one may have taken the other.
            self._end_all(worker, Outcome.SHUTDOWN, "the worker died, and its supervisor did not come back")
        self._forget(worker)

    def _check_lease(self, lease: Lease, mono: int) -> None:
        if lease.worker.dead or lease.waits:
            # The end of the one is waited for by `report_by_ms`, and there is nobody left to kill; the other shares
            # the fate of the one before it.
            return
        if lease.kill is not None:
            if not lease.kill_ms:
                self.kill(lease, lease.kill)
            elif lease.kill_ms <= mono:
                self._kill_overdue(lease, mono)
        elif lease.deadline_ms <= mono:
            self._expire(lease)
        elif self._limit_of(lease) <= mono:
            self.kill(lease, Outcome.TIMEOUT)

    def _limit_of(self, lease: Lease) -> int:
        """When it is over its time limit. Of a worker that is away nobody knows whether it has ended in time, until it
        has had the time to come back and say so."""
        worker = lease.worker
        if worker.connection is not None or not worker.back_by_ms:
            return lease.limit_ms
        return max(lease.limit_ms, worker.back_by_ms - self._memory.rules.reconnect_grace_ms + BACK_MS)

    def _expire(self, lease: Lease) -> None:
        if lease.worker.is_supervised:
            self.kill(lease, Outcome.LOST)
        else:
            self._leasing.end(lease, Outcome.LOST, reason=_reason_of_kill(Outcome.LOST))

    def kill(self, lease: Lease, reason: Outcome) -> None:
        """Have the process of an attempt ended, by its supervisor or by the wish in its heartbeat."""
        if lease.kill is None:
            lease.kill = reason
        if lease.waits:
            self._prefetch.recall(lease.worker)
            return
        grace_ms = 0 if reason is Outcome.LOST else self._memory.rules.kill_grace_ms
        self._wait_for_kill(lease, grace_ms)
        self._push_kill(lease, grace_ms)

    def _wait_for_kill(self, lease: Lease, grace_ms: int) -> None:
        """Whoever is told to end a process has so long, from now."""
        silence_ms = self._memory.rules.supervisor_grace_ms if lease.worker.is_supervised else 0
        lease.kill_ms = self._memory.now.mono_ms + grace_ms + silence_ms
        self._leasing.check_by(lease.kill_ms)

    def _push_kill(self, lease: Lease, grace_ms: int) -> None:
        pool = self._registry.pool_of(lease.worker)
        if pool is not None and pool.connection is not None and lease.kill is not None:
            message = work.Kill(lease.worker.nonce, list(lease.token), str(lease.kill), grace_ms)
            self._memory.effects.append(fx.Push(pool.connection, message))

    def supervisor_came(self, pool: Pool, alive: Collection[str]) -> None:
        """A supervisor said who of its workers is `alive`, perhaps after it was away or this broker was.

        What it was told before may not have reached it. A worker that it does not have has ended, and
        its report has its usual time to come.
        """
        for worker in self._registry.of_pool(pool):
            if worker.connection is None and not worker.dead and worker.nonce not in alive:
                self.worker_died(worker)
                continue
            for lease in worker.leases.values():
                if lease.kill is not None:
                    self.kill(lease, lease.kill)

    def _kill_overdue(self, lease: Lease, mono: int) -> None:
        """The one who was told has been silent too long."""
        worker = lease.worker
        if not worker.is_supervised:
            assert lease.kill is not None
            self._leasing.end(lease, lease.kill, reason=_reason_of_kill(lease.kill))
        elif worker.connection is not None:
            self._memory.effects.append(fx.KillPeer(worker.connection))
            lease.kill_ms = mono + self._memory.rules.supervisor_grace_ms
        else:
            # Alive, not connected, and nobody who could end it: the job stays leased, `why` says so.
            lease.kill_ms = mono + self._memory.rules.supervisor_grace_ms
            self._push_kill(lease, 0)

    def _end_all(self, worker: Worker, outcome: Outcome, reason: str) -> None:
        for lease in list(worker.leases.values()):
            self._leasing.end(lease, outcome, reason=reason)


def _reason_of_kill(kill: Outcome) -> str:
    if kill is Outcome.TIMEOUT:
        return "over its time limit"
    if kill is Outcome.CANCELLED:
        return "its process was ended"
    return "no heartbeat within the lease"


def _verdict(lease: Lease, report: work.Exited) -> tuple[Outcome, str]:
    """The outcome of the attempt that a process was running when it ended."""
    killed_for = None if report.kill_token is None else tuple(report.kill_token)
    is_meant = killed_for == lease.token
    if lease.kill is not None and (is_meant or lease.kill is Outcome.CANCELLED):
        return lease.kill, _reason_of_kill(lease.kill)
    if killed_for is not None and not is_meant:
        return Outcome.RELEASED, "ended by a kill that was meant for another attempt"
    if report.shutdown:
        return Outcome.SHUTDOWN, "its pool ended the worker, or lost the zygote"
    if is_meant:
        reason = "killed by its supervisor: silent for too long, or by an order from before a restart"
        return Outcome.TIMEOUT, reason
    if report.over_memory:
        return Outcome.MEMORY, f"worker died (signal {report.signal}) at its job's memory limit"
    if report.signal is not None:
        return Outcome.CRASH, f"worker died (signal {report.signal})"
    if report.status is not None:
        return Outcome.CRASH, f"worker died (exit status {report.status})"
    return Outcome.CRASH, "worker died (status unknown)"
