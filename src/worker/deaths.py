"""`on_dead`: the hooks that are told of jobs that became dead.

An app with such hooks has one kind more for each of its kinds, `KIND.on_dead`, and declares it to the
broker as the one to tell. So a notice is a job: it survives restarts, it is made for deaths by crash and
expiry too, which no worker has seen, and if a hook raises it is tried again. The kinds are added after the
import of the app, in the pool only.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

SUFFIX = ".on_dead"


class DeadJob(NamedTuple):
    """What is known of a job that became dead."""

    id: str
    kind: str
    queue: str
    attempt: int
    """Attempts it had; 0 if it expired or overflowed before its first."""
    outcome: str
    """Of its last attempt; empty if it had none."""
    reason: str
    """Why it is dead."""
    headers: Mapping[str, str]
    created_at_ms: int
    """Milliseconds since 1970, like `finished_at_ms`."""
    finished_at_ms: int


def handler_of(hooks: Callable[[DeadJob], object]) -> Callable[[dict[str, Any]], None]:
    """The function that takes a notice. What a later broker may add to it is left out."""

    def on_dead(known: dict[str, Any]) -> None:
        hooks(DeadJob(*(known[field] for field in DeadJob._fields)))

    return on_dead
