"""States of a job and outcomes of an attempt: the two vocabularies every surface shares.

The words are the wire's, the command line's, the columns' and the methods' words alike.
"""

from enum import StrEnum

COMMAND = "command"
"""The kind of jobs that are programs. It is built in, and served by pools that say `--commands`."""


class State(StrEnum):
    """Where a job is in its life. `docs/protocol.md` has the table of transitions."""

    SCHEDULED = "scheduled"
    """Not before its time: a delay, a date, or waiting for a retry (`attempt` > 0 tells which)."""
    READY = "ready"
    """May run now. Order within a queue: priority (lower first), then position."""
    LEASED = "leased"
    """One attempt belongs to one worker."""
    DONE = "done"
    """Finished; kept for the retention window."""
    DEAD = "dead"
    """Needs a person: attempts used up, permanent error, expired, crashed too often, overflow."""
    CANCELLED = "cancelled"
    """Withdrawn, and no process of it lives."""


LIVE_STATES = frozenset({State.SCHEDULED, State.READY, State.LEASED})
"""Held in the broker's memory and counted against the queue's limits."""

FINAL_STATES = frozenset({State.DONE, State.DEAD, State.CANCELLED})
"""On disk only. `kick` brings a dead job back; nothing else leaves these but retention and drop."""


class Outcome(StrEnum):
    """How one attempt ended."""

    OK = "ok"
    ERROR = "error"
    PERMANENT = "permanent"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"
    """The worker process died under the job: signal or exit status are recorded."""
    LOST = "lost"
    """The lease ran out, or the owner vanished without a report."""
    RELEASED = "released"
    """Given back without fault of the job; charges nothing."""
    SHUTDOWN = "shutdown"
    """Ended by a drain, a deploy, or the death of zygote or supervisor; charges nothing."""
    CANCELLED = "cancelled"


class Overflow(StrEnum):
    """What happens to an enqueue when its queue is over its jobs or bytes."""

    REJECT = "reject"
    """Refused with `queue_full`."""
    WAIT = "wait"
    """The answer waits for room, at most as long as the client said, then `queue_full`."""
    DEAD = "dead"
    """Accepted as a dead letter, up to the cap for those, then `queue_full`."""


class Role(StrEnum):
    """What a connection may do. A peer's uid grants a set; a `hello` that names one gives up the rest."""

    SUBMIT = "submit"
    WORK = "work"
    SUPERVISE = "supervise"
    ADMIN = "admin"
