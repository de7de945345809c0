"""The greatest `status` that there can be, made of the longest of everything, fits into a frame with room to spare.

Built from its parts: what is in it is bounded by the limits alone, and to come there by requests takes minutes.
"""

from itertools import count
from typing import Any

import pytest
from support.core_builders import a_job

from stoker.broker.core.events import Now
from stoker.broker.core.following import Following
from stoker.broker.core.leasing import Leasing
from stoker.broker.core.memory import Memory
from stoker.broker.core.prefetch import Prefetch
from stoker.broker.core.reporting import Reporting
from stoker.broker.core.rules import Rules
from stoker.broker.core.waiting import Waiting
from stoker.broker.core.workers import Lease, Pool, Registry, Worker, identity_text
from stoker.proto import codec, limits
from stoker.proto.messages import ANSWER, StatusReport
from stoker.proto.ops import BY_NAME

START = Now(1, 1, 1)
BOOT_ID, NONCE = "b" * 64, "n" * 64
PID = limits.INTEGER_MAX
POLICY: dict[str, Any] = {
    "queue": "q" * limits.NAME_BYTES_MAX,
    "priority": limits.PRIORITY_MIN,
    "expires_ms": limits.DURATION_MS_MAX,
    "attempts_max": limits.ATTEMPTS_MAX_LIMIT,
    "crashes_max": limits.ATTEMPTS_MAX_LIMIT,
    "time_limit_ms": limits.DURATION_MS_MAX,
    "lease_ms": limits.LEASE_MS_MAX,
    "backoff_ms": limits.DURATION_MS_MAX,
    "backoff_cap_ms": limits.DURATION_MS_MAX,
    "dead_kind": "d" * limits.NAME_BYTES_MAX,
}


def longest(number: int) -> str:
    """A name of the greatest length that is unlike all others."""
    return f"{number:x>{limits.NAME_BYTES_MAX}}"


def identity(number: int) -> list[Any]:
    return [BOOT_ID, limits.INTEGER_MAX, PID, limits.INTEGER_MAX, f"{number:n>{len(NONCE)}}"]


class Fullest:
    """As many pools, kinds, workers and queues as there may be, or more than are shown, all with long names."""

    def __init__(self) -> None:
        self.memory, self.registry = Memory(Rules(), limits.INTEGER_MAX, START), Registry()
        self._numbers = count(1)
        self._add_kinds()
        for number in range(limits.POOLS_MAX):
            self._add_pool(number)
        for number in range(limits.STATUS_ROWS_MAX + 1):
            self._add_worker(number)
        self._add_queues()

    def _add_kinds(self) -> None:
        for number in range(limits.KINDS_MAX):
            self.memory.declare_kind(longest(number), longest(0), POLICY)

    def _add_pool(self, number: int) -> None:
        # Each declares the kinds unlike the one before, for the longest warnings there are.
        kinds = {longest(at): {**POLICY, "priority": number} for at in range(limits.LIST_ITEMS_MAX)}
        self.registry.pools[bytes([number]) * limits.TICKET_BYTES] = Pool(
            ticket=bytes([number]) * limits.TICKET_BYTES,
            name=longest(number),
            identity=identity_text(identity(number)),
            pid=PID,
            connection=number,
            kinds=kinds,
            code=longest(number),
            reload={
                "state": "starting",
                "mono_ms": limits.INTEGER_MAX,
                "error": "e" * limits.REPORT_BYTES_MAX,
            },
        )

    def _add_worker(self, number: int) -> None:
        ticket = bytes([number % limits.POOLS_MAX]) * limits.TICKET_BYTES
        name = identity_text(identity(number))
        worker = Worker(name, name, NONCE, PID, ticket, slots=limits.SLOTS_MAX, connection=number)
        for _ in range(limits.STATUS_ROW_ITEMS_MAX + 1):
            at = next(self._numbers)
            job = a_job(at, id=longest(at), kind=longest(at % limits.KINDS_MAX))
            self.memory.jobs[at] = job
            worker.leases[at, at] = Lease((at, at), at, worker, 1)
        self.registry.add_worker(worker)

    def _add_queues(self) -> None:
        for number in range(limits.QUEUES_MAX):
            queue = self.memory.queue(longest(number))
            queue.counts = dict.fromkeys(queue.counts, limits.INTEGER_MAX // limits.QUEUES_MAX)
            queue.bytes = limits.INTEGER_MAX

    def status(self) -> dict[str, Any]:
        waiting = Waiting(self.memory)
        prefetch = Prefetch(self.memory, self.registry)
        leasing = Leasing(self.memory, self.registry, waiting, Following(self.memory), prefetch, float)
        return Reporting(self.memory, self.registry, leasing, waiting).status()


@pytest.mark.slow
def test_greatest_status_fits_into_a_frame_with_room_to_spare() -> None:
    status = Fullest().status()
    rows = (len(status["queues"]), len(status["workers"]), len(status["kinds"]), len(status["pools"]))
    assert rows == (*[limits.STATUS_ROWS_MAX] * 3, limits.POOLS_MAX)
    assert len(status["warnings"]) == limits.WARNINGS_MAX + 1, "the last says that there are more"
    assert all(worker["jobs_left_out"] == 1 for worker in status["workers"])
    assert all(pool["kinds_left_out"] > 0 for pool in status["pools"])
    frame = codec.encode([ANSWER, 1, *StatusReport(status)])
    assert limits.FRAME_BYTES_MAX // 4 < len(frame) < limits.FRAME_BYTES_MAX * 3 // 4


def test_longest_of_everything_is_legal() -> None:
    pool = BY_NAME["pool"]
    rules = dict(zip(pool.message._fields, pool.rules, strict=True))
    assert rules["identity"].accepts(identity(1))
    assert not rules["identity"].accepts([BOOT_ID + "b", *identity(1)[1:]])
    assert not rules["identity"].accepts([*identity(1)[:4], NONCE + "n"])
    assert rules["kinds"].accepts([{"kind": longest(1), **POLICY}])
    assert rules["name"].accepts(longest(1)) and not rules["name"].accepts(longest(1) + "x")
