"""Which op is legal in which state of a connection, as a table.

`connection.py` has the theory and asks; `docs/protocol.md` prints the grid and a test compares.
"""

from collections.abc import Iterator, Mapping
from enum import Enum

from .model import Role
from .ops import OPS, Op


class State(Enum):
    """Where a connection is in its life; see the module."""

    NEW = "new"
    CLIENT = "client"
    WORKER = "worker"
    SUPERVISOR = "supervisor"
    ENDED = "ended"


_CLIENT_OPS = frozenset(
    {
        "enqueue",
        "cancel",
        "kick",
        "drop",
        "show",
        "jobs",
        "status",
        "why",
        "wait",
        "pause",
        "resume",
        "drain",
        "snapshot",
        "follow",
    }
)

LEGAL: Mapping[State, frozenset[str]] = {
    State.NEW: _CLIENT_OPS | {"hello", "pool", "help"},
    State.CLIENT: _CLIENT_OPS | {"help"},
    State.WORKER: frozenset({"help", "ack", "nack", "release", "heartbeat", "progress", "output"}),
    State.SUPERVISOR: frozenset({"help", "pool", "heartbeat", "exited", "recalled"}),
    State.ENDED: frozenset[str](),
}
"""Which ops a state takes. The role is a question of its own, which `ops.py` answers."""

AFTER: Mapping[Role, State] = {
    Role.SUBMIT: State.CLIENT,
    Role.ADMIN: State.CLIENT,
    Role.WORK: State.WORKER,
    Role.SUPERVISE: State.SUPERVISOR,
}
"""Where the first message of a role leads: `hello`, or `pool` for a supervisor."""


def legal_ops(state: State, roles: frozenset[Role]) -> Iterator[Op]:
    """The ops that a connection in `state` with these roles may send."""
    return (op for op in OPS if op.name in LEGAL[state] and op.roles & roles)
