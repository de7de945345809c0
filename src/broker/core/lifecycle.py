"""The life of a job: six states, who moves a job between them, and nothing else.

    (enqueue) ─► scheduled ─due─► ready ─granted─► leased ─acked─► done
                    ▲               ▲                │ │ │
                    │               └── released ────┘ │ └─ cancelled ─► cancelled
                    └────── failed, backoff ───────────┤
                                                       └─ gave_up ─► dead ─kicked─► ready

- `scheduled`, `ready` and `leased` jobs live in memory and count against their queue's limits.
- `done`, `dead` and `cancelled` are final: the job leaves memory with the commit of its last image,
  and only the journal has it. Only `kicked` leads out of them, and only out of `dead`.
- A lease is the one proof that a worker owns an attempt. Whatever ends it (ack, nack, release,
  expiry, death) ends it once: the token is gone, and a later message with it is `lease_lost`.
- A person's `cancel` of a leased job does not move it: it marks the job, has its process ended, and
  the end of the attempt decides: an ack that was faster makes it done, anything else cancelled.

Absent on purpose: a state for "failed, will retry" (that is scheduled or ready with `attempt` > 0),
a state for "paused" (queues pause, jobs do not), and any way from one final state to another.

`TRANSITIONS` is the whole truth: `docs/protocol.md` prints it, `move` asserts it, and one test runs
every pair of state and command.
"""

from enum import StrEnum

from ...proto.model import State


class Command(StrEnum):
    """Why a job moves."""

    DUE = "due"
    """Its time has come."""
    GRANTED = "granted"
    """A worker with a free slot got it."""
    ACKED = "acked"
    """The attempt succeeded."""
    FAILED = "failed"
    """The attempt ended otherwise and another one is allowed, after its backoff."""
    RETURNED = "returned"
    """The attempt ended and the job may run again at once: released, shut down, first crash."""
    GAVE_UP = "gave_up"
    """No further attempt: limit reached, permanent error, crashed or released too often."""
    EXPIRED = "expired"
    """Its expiry passed before it ran."""
    CANCELLED = "cancelled"
    """A person withdrew it."""
    KICKED = "kicked"
    """A person revived it."""


TRANSITIONS: dict[tuple[State, Command], State] = {
    (State.SCHEDULED, Command.DUE): State.READY,
    (State.SCHEDULED, Command.EXPIRED): State.DEAD,
    (State.SCHEDULED, Command.CANCELLED): State.CANCELLED,
    (State.READY, Command.GRANTED): State.LEASED,
    (State.READY, Command.EXPIRED): State.DEAD,
    (State.READY, Command.CANCELLED): State.CANCELLED,
    (State.LEASED, Command.ACKED): State.DONE,
    (State.LEASED, Command.FAILED): State.SCHEDULED,
    (State.LEASED, Command.RETURNED): State.READY,
    (State.LEASED, Command.GAVE_UP): State.DEAD,
    (State.LEASED, Command.CANCELLED): State.CANCELLED,
    (State.DEAD, Command.KICKED): State.READY,
}
"""(state, command) to the new state. A pair that is not here cannot happen."""


def target(state: State, command: Command) -> State:
    """The state after a command. AssertionError for a pair that is not in the table: a bug here."""
    to = TRANSITIONS.get((state, command))
    assert to is not None, f"{command} in state {state}"
    return to
