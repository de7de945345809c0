"""The numbers the core plays by: defaults from `proto.limits`, replaced by what a deployment configures.

A job's policy is looked up in one fixed order: what its enqueue said, what its kind declared, what
its queue configures, the default. Queue, priority and expiry are settled when the job is enqueued
(or when its kind is first registered); all the rest each time it is asked for.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import attrs

from ...proto import limits
from ...proto.queuerules import QueueRules
from .job import Job


class Policy(NamedTuple):
    """What decides about the attempts of a job. Each field is a field of `Job`, where None says nothing."""

    attempts_max: int = limits.ATTEMPTS_MAX_DEFAULT
    crashes_max: int = limits.CRASHES_MAX_DEFAULT
    time_limit_ms: int = limits.TIME_LIMIT_MS_DEFAULT
    lease_ms: int = limits.LEASE_MS_DEFAULT
    backoff_ms: int = limits.BACKOFF_MS_DEFAULT
    backoff_cap_ms: int = limits.BACKOFF_CAP_MS_DEFAULT


_own = attrgetter(*Policy._fields)
_SAYS_NOTHING = (None,) * len(Policy._fields)


@attrs.frozen
class Rules:
    """Everything configurable that the core reads. Times are milliseconds."""

    queue_default: QueueRules = attrs.Factory(QueueRules)
    queues: Mapping[str, QueueRules] = attrs.Factory(dict[str, QueueRules])
    heartbeat_ms_max: int = limits.HEARTBEAT_MS_MAX
    reconnect_grace_ms: int = limits.RECONNECT_GRACE_MS
    supervisor_grace_ms: int = limits.SUPERVISOR_GRACE_MS
    kill_grace_ms: int = limits.KILL_GRACE_MS
    id_kept_caller_ms: int = limits.ID_KEPT_CALLER_MS
    id_kept_library_ms: int = limits.ID_KEPT_LIBRARY_MS
    ids_kept_max: int = limits.IDS_KEPT_MAX
    jobs_max: int = limits.LIVE_JOBS_MAX_DEFAULT
    """Live jobs of all queues together."""
    quick_runs: int = 16
    """Attempts in a row that have to be quick before jobs of a kind are sent ahead (see `prefetch`)."""
    ready_per_worker: int = 1
    """Jobs of a queue that have to be left for each worker there is, when some are sent ahead."""

    def queue(self, name: str) -> QueueRules:
        """The rules of a queue; unknown names have the default ones."""
        return self.queues.get(name, self.queue_default)

    def policy(self, kind: Mapping[str, Any], queue_name: str) -> Policy:
        """The policy of jobs that say nothing themselves: that of the kind, over the queue's, over the default."""
        said = Policy._field_defaults | dict(self.queue(queue_name).policy)
        said |= {name: value for name, value in kind.items() if value is not None}
        return Policy(*(said[name] for name in Policy._fields))

    @property
    def shortest_lease_ms(self) -> int:
        """The shortest lease that needs no kind and no job to ask for it."""
        queues = (self.queue_default, *self.queues.values())
        return min(queue.policy.get("lease_ms", limits.LEASE_MS_DEFAULT) for queue in queues)


def own_policy(job: Job, base: Policy) -> Policy:
    """The policy of one job: what its enqueue said, over `base`."""
    own = _own(job)
    if own == _SAYS_NOTHING:
        return base
    return Policy(*(mine if mine is not None else given for mine, given in zip(own, base, strict=True)))


def settle(job: Job, kind: Mapping[str, Any], rules: Rules) -> None:
    """Take queue, priority and expiry from the kind, else the queue, where the enqueue left them open."""
    job.resolved = True
    if not job.queue_given:
        job.queue = kind.get("queue") or job.queue
    queue = rules.queue(job.queue).policy
    if not job.priority_given:
        job.priority = either(kind.get("priority"), queue.get("priority")) or 0
    if not job.expires_given:
        job.expires_ms = either(kind.get("expires_ms"), queue.get("expires_ms")) or 0
        job.expires_boot_ms = job.created_boot_ms + job.expires_ms if job.expires_ms else 0


def either(first: int | None, second: int | None) -> int | None:
    """The first that says something. (0 does.)"""
    return second if first is None else first
