"""Notices: the job that tells an app of a job that became dead.

A kind may declare a `dead_kind`. In the very step in which one of its jobs becomes dead, whatever made it
so, a job of that other kind is made, in the same queue and of the same priority, that says what is known.
Both are one transaction: there is no death without its notice and no notice without a death, through
every crash and restart. From then on it is a job like any other: delivered at least once, retried, visible,
and dead itself when nothing helps. Nobody is told of that, because its own kind declares none; so there
is no loop.

It is let in whatever the limits of its queue: the job that died has just made room. Its id has a random
part, because ids are the callers' to choose, and one that was there already could not be stored.
"""

import json
from collections.abc import Callable
from hashlib import blake2b

from ...proto.model import State
from .job import Job
from .memory import Memory

_READY = State.READY


def dead_kind(memory: Memory, job: Job) -> str:
    """The kind that is told when this job becomes dead; empty if nobody is."""
    kind: str = memory.kind_policy(job.kind).get("dead_kind", "")
    return kind


def make(memory: Memory, dead: Job, kind: str, chance: Callable[[], float]) -> Job:
    """The notice of a death, admitted and written; it is ready."""
    number = memory.next_number()
    id = f"dead-{dead.number}-{number}-{int(chance() * 2**52):013x}"
    payload = json.dumps([_known(dead)]).encode()
    job = Job(
        number=number,
        id=id,
        body_hash=blake2b(id.encode(), digest_size=16).digest(),
        id_by_caller=False,
        kind=kind,
        queue=dead.queue,
        priority=dead.priority,
        position=number,
        state=_READY,
        resolved=True,
        payload_bytes=len(payload),
        headers=None,
        created_at_ms=memory.now.wall_ms,
        epoch=memory.epoch,
        created_boot_ms=memory.now.boot_ms,
        queue_given=True,
        priority_given=True,
        expires_given=True,
    )
    memory.create(job, payload)
    return job


def _known(dead: Job) -> dict[str, object]:
    return {
        "id": dead.id,
        "kind": dead.kind,
        "queue": dead.queue,
        "attempt": dead.attempt,
        "outcome": dead.outcome,
        "reason": dead.reason,
        "headers": dict(dead.headers or {}),
        "created_at_ms": dead.created_at_ms,
        "finished_at_ms": dead.finished_at_ms,
    }
