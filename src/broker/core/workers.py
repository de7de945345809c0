"""Who is connected: peers, workers with their slots, and the supervisors that vouch for them.

A worker is known by its identity (boot id, PID namespace, pid, start ticks, nonce), which outlives
its connection: the journal keeps it with each lease, so a worker that comes back after a restart of
the broker finds its attempts. A supervisor is known by its ticket, 16 random bytes that its workers
show in their `hello`; what it reports counts only for workers that showed it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from ...proto import limits, work
from ...proto.model import Outcome
from .turns import Turns

Key = tuple[int, int]
"""A token as a key: (epoch, counter)."""

ENDED_KEPT = 64
"""Ended tokens a worker's repeats are recognised by, beyond its slots."""


Takes = tuple[frozenset[str], frozenset[str] | None]
"""The kinds and the queues (None: all) of a worker."""


RAW = "connection/"
"""How the identity of a worker begins that gave none: it is its connection, and ends with it."""


def identity_text(identity: Iterable[Any]) -> str:
    """`boot id/pid namespace/pid/start ticks/nonce`, as the journal keeps it."""
    return "/".join(map(str, identity))


@attrs.define(eq=False)
class Lease:
    """One attempt and its owner. Deadlines are on the monotonic clock."""

    token: Key
    number: int
    worker: "Worker"
    lease_ms: int
    deadline_ms: int = 0
    """Lost if no heartbeat came by then."""
    limit_ms: int = 0
    """Over its time limit then."""
    waits: bool = False
    """Sent ahead: it begins when the one before it ends (see `prefetch`)."""
    kill: Outcome | None = None
    """Its process shall end, for this reason; the supervisor (or a raw worker's heartbeat) was told."""
    kill_ms: int = 0
    """When the one who was told has been silent too long; 0 while nobody was."""
    progress: work.Progress | None = None
    """What the handler said last of how far it is. Nobody else keeps it."""
    progress_ms: int = 0
    """When that was."""

    def renew(self, deadline_ms: int) -> None:
        """Not lost before then. Never sooner than before: a first deadline may be a supervisor's beat away."""
        self.deadline_ms = max(self.deadline_ms, deadline_ms)


@attrs.define(eq=False)
class Worker:
    """A worker process, or a raw connection that works."""

    identity: str
    name: str
    nonce: str
    pid: int
    ticket: bytes
    kinds: frozenset[str] = frozenset()
    slots: int = 1
    prefetch: int = 0
    """How many jobs it takes ahead, if it is one that may."""
    turns: Turns | None = None
    """The queues it takes jobs from; None: all."""
    is_text: bool = False
    connection: int | None = None
    leases: dict[Key, Lease] = attrs.Factory(dict[Key, Lease])
    ended: dict[Key, str] = attrs.Factory(dict[Key, str])
    """Tokens that ended lately, and by which op: a repeat of it is answered as the first was."""
    dead: bool = False
    """Its pidfd fired, or its identity is proved dead."""
    back_by_ms: int = 0
    """While disconnected: when its reconnect grace is over. Monotonic."""
    report_by_ms: int = 0
    """While dead and unreported: when its supervisor's grace is over. Monotonic."""
    report: work.Exited | None = None
    """An `exited` that came before the pidfd agreed."""
    report_callers: list[tuple[int, int]] = attrs.Factory(list[tuple[int, int]])
    """(connection, request) of those whom its application will answer."""
    doomed_by_ms: int = 0
    """Its supervisor is dead, so it gets nothing new and is to have ended by then. 0: no such thing."""
    runs_alone: bool = False
    """What it runs is a suspect, and nothing else runs beside it."""
    clears: bool = False
    """It takes nothing new until it runs nothing: a suspect waits for a place of its own."""
    first_since_ms: int = 0
    """When the first of its leases began. Monotonic. Of one with `prefetch` only, as the two below."""
    is_slow: bool = False
    """That one takes too long for others to wait behind it."""
    recalled_ms: int = 0
    """When those others were last asked back. Monotonic."""
    idle_since: int = 0
    """Its turn among the idle: whoever has the lowest has waited longest. 0 while it is not idle."""

    @property
    def can_return(self) -> bool:
        """Whether a new connection could show that it is this worker's."""
        return not self.identity.startswith(RAW)

    @property
    def takes(self) -> "Takes":
        """What the indexes know it by: which jobs it may get."""
        return self.kinds, None if self.turns is None else self.turns.names

    @property
    def is_supervised(self) -> bool:
        """Somebody kills, reaps and sweeps for it."""
        return bool(self.ticket)

    @property
    def may_take(self) -> bool:
        """Whether it may be handed anything."""
        return not (
            self.connection is None or self.dead or self.doomed_by_ms or self.runs_alone or self.clears
        )

    @property
    def free_slots(self) -> int:
        """How many more jobs it may run now."""
        return self.slots - len(self.leases) if self.may_take else 0

    def remember_ended(self, token: Key, op: str) -> None:
        """Keep an ended token for repeats."""
        self.ended[token] = op
        if len(self.ended) > self.slots + ENDED_KEPT:
            del self.ended[next(iter(self.ended))]


@attrs.define(eq=False)
class Pool:
    """A supervisor and what it declared."""

    ticket: bytes
    name: str
    identity: str = ""
    """Empty while only its workers' leases tell of it, after a restart."""
    pid: int = 0
    connection: int | None = None
    kinds: Mapping[str, Mapping[str, Any]] = attrs.Factory(dict[str, Mapping[str, Any]])
    heartbeat_ms: int = 0
    code: str = ""
    """Which code serves, by its own account."""
    quick_runs: dict[str, int] = attrs.Factory(dict[str, int])
    """Kind to how many of its attempts in a row were quick (see `prefetch`)."""
    reload: Mapping[str, Any] | None = None
    """Its last reload, for `status`."""
    dead: bool = False
    died_ms: int = 0
    """When that became known. Monotonic."""
    gone_by_ms: int = 0
    """While disconnected: when its grace is over. Monotonic."""


@attrs.define(eq=False)
class Peer:
    """One connection and what it turned out to be."""

    connection: int
    uid: int
    pid: int
    is_text: bool
    worker: Worker | None = None
    pool: Pool | None = None


class Registry:
    """Peers, workers and pools, with the idle workers by what they can run."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        self.workers: dict[str, Worker] = {}
        self.pools: dict[bytes, Pool] = {}
        self._idle: dict[Takes, dict[str, Worker]] = {}
        self._turn = 0
        self._by_nonce: dict[tuple[bytes, str], Worker] = {}

    def refresh(self, worker: Worker) -> None:
        """Enter a worker among the idle, behind all others, or take it out, by its free slots."""
        if worker.idle_since:
            worker.idle_since = 0
            idle = self._idle[worker.takes]
            del idle[worker.identity]
            if not idle:
                del self._idle[worker.takes]
        if worker.free_slots > 0 and worker.identity in self.workers:
            self._turn += 1
            worker.idle_since = self._turn
            self._idle.setdefault(worker.takes, {})[worker.identity] = worker

    def idle_for(self, kind: str, queue: str) -> Worker | None:
        """The worker that has waited longest among those that can run a kind of a queue."""
        longest: Worker | None = None
        for (kinds, queues), idle in self._idle.items():
            if kind in kinds and (queues is None or queue in queues):
                worker = next(iter(idle.values()))
                if longest is None or worker.idle_since < longest.idle_since:
                    longest = worker
        return longest

    def serving(self, kind: str, queue: str) -> Iterator[Worker]:
        """The connected workers that can run a kind of a queue."""
        for worker in self.workers.values():
            kinds, queues = worker.takes
            if worker.connection is not None and kind in kinds and (queues is None or queue in queues):
                yield worker

    def empty_for(self, kind: str, queue: str) -> Worker | None:
        """One of them that runs nothing, the longest idle."""
        empty = [each for each in self.serving(kind, queue) if each.idle_since and not each.leases]
        return min(empty, key=lambda worker: worker.idle_since, default=None)

    def somebody_clears_for(self, kind: str, queue: str) -> bool:
        """Whether one of them is on its way to run nothing."""
        return any(worker.clears and not worker.dead for worker in self.serving(kind, queue))

    def idle(self) -> list[Worker]:
        """All workers with a free slot, the longest idle first."""
        workers = [worker for idle in self._idle.values() for worker in idle.values()]
        return sorted(workers, key=lambda worker: worker.idle_since)

    def add_worker(self, worker: Worker) -> None:
        """Make a worker known."""
        self.workers[worker.identity] = worker
        if worker.ticket:
            self._by_nonce[worker.ticket, worker.nonce] = worker
        self.refresh(worker)

    def forget_worker(self, worker: Worker) -> None:
        """The worker has ended and owns nothing any more."""
        assert not worker.leases
        self._out_of_indexes(worker)

    def renew(
        self,
        worker: Worker,
        ticket: bytes,
        kinds: frozenset[str],
        turns: Turns | None,
        slots: int,
        prefetch: int,
    ) -> None:
        """What the indexes go by changed: the worker said hello anew."""
        self._out_of_indexes(worker)
        worker.ticket, worker.kinds, worker.turns, worker.slots = ticket, kinds, turns, slots
        worker.prefetch = prefetch if ticket and slots == 1 else 0
        self.add_worker(worker)

    def _out_of_indexes(self, worker: Worker) -> None:
        self.workers.pop(worker.identity, None)
        self._by_nonce.pop((worker.ticket, worker.nonce), None)
        self.refresh(worker)

    def by_nonce(self, ticket: bytes, nonce: str) -> Worker | None:
        """The worker that showed this ticket and has this nonce."""
        return self._by_nonce.get((ticket, nonce))

    def of_pool(self, pool: Pool) -> list[Worker]:
        """The workers that showed a pool's ticket."""
        return [worker for worker in self.workers.values() if worker.ticket == pool.ticket]

    def has_room_for_pool(self, ticket: bytes) -> bool:
        """Whether the pool of that ticket is known, or one more may be.

        Those that have left, and are only kept for a while in case they come back, make room.
        """
        if ticket in self.pools or len(self.pools) < limits.POOLS_MAX:
            return True
        for pool in [pool for pool in self.pools.values() if pool.connection is None]:
            if not self.of_pool(pool):
                del self.pools[pool.ticket]
        return len(self.pools) < limits.POOLS_MAX

    def is_missed(self, connection: int) -> bool:
        """Whether the peer leaves something open if it goes now: an attempt, or a pool's workers."""
        peer = self.peers.get(connection)
        if peer is None:
            return False
        if peer.worker is not None and peer.worker.leases:
            return True
        return peer.pool is not None and bool(self.of_pool(peer.pool))

    def pool_of(self, worker: Worker) -> Pool | None:
        """The supervisor of a worker, if it is known."""
        return self.pools.get(worker.ticket) if worker.ticket else None

    def known_kinds(self) -> set[str]:
        """Kinds that a connected worker can run."""
        return {
            kind
            for kinds in {worker.kinds for worker in self.workers.values() if worker.connection is not None}
            for kind in kinds
        }
