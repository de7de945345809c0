"""The terms of a simulated run: which kinds there are, and what limits and durations hold.

Durations are short, so that much happens to them in a run of half a minute. A run of hours stretches
them to what is usual (30 times: a lease of a minute); delays of the network and of the disk stay.
"""

from typing import Any

from stoker.broker.core.rules import Rules
from stoker.proto import limits
from stoker.proto.model import Overflow
from stoker.proto.queuerules import QueueRules


def kinds(stretch: int) -> tuple[dict[str, Any], ...]:
    """What the pools declare, with durations so many times as long as in a short run."""
    send: dict[str, Any] = {
        "kind": "send",
        "queue": "mail",
        "lease_ms": 2000 * stretch,
        "time_limit_ms": 3000 * stretch,
        "backoff_ms": 100 * stretch,
        "backoff_cap_ms": 4000 * stretch,
    }
    digest: dict[str, Any] = {
        "kind": "digest",
        "priority": -2,
        "lease_ms": 3000 * stretch,
        "time_limit_ms": 6000 * stretch,
        "backoff_ms": 500 * stretch,
        "backoff_cap_ms": 5000 * stretch,
    }
    poison: dict[str, Any] = {
        "kind": "poison",
        "crashes_max": 3,
        "backoff_ms": 100 * stretch,
        "backoff_cap_ms": 1000 * stretch,
    }
    return send, digest, poison


def rules(stretch: int) -> Rules:
    """The broker's configuration."""
    short = {
        "lease_ms": 2000 * stretch,
        "time_limit_ms": 4000 * stretch,
        "backoff_ms": 100 * stretch,
        "backoff_cap_ms": 2000 * stretch,
    }
    return Rules(
        queue_default=QueueRules(jobs_max=20, overflow=Overflow.WAIT, policy=short),
        queues={
            "mail": QueueRules(jobs_max=12, bytes_max=3000, policy=short),
            "reports": QueueRules(
                jobs_max=6,
                dead_max=20,
                overflow=Overflow.DEAD,
                policy=short | {"backoff_cap_ms": 1000 * stretch},
            ),
        },
        heartbeat_ms_max=500 * stretch,
        reconnect_grace_ms=3000 * stretch,
        supervisor_grace_ms=4000 * stretch,
        kill_grace_ms=500 * stretch,
        quick_runs=0,
        ready_per_worker=0,
    )


LONGEST_ROUND_MS = 6000 + 500 + 3000 + 4000 + 5000
"""One attempt of a digest that hangs, whose kill is not heard, whose supervisor is silent, and its backoff."""

SETTLE_MS = limits.ATTEMPTS_MAX_DEFAULT * LONGEST_ROUND_MS
"""Everything is finished so long after the last fault, as often as durations are stretched: every attempt
of a job may go that way."""
