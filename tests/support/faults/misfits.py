"""Messages that are right, and single values that make each of them wrong, with what a sender is told.

Written down by hand and not asked of the code's own rules: a rule that accepts too much must not be
able to answer for itself. Names begin with `h-`, so that what is right here touches nobody else's jobs.
"""

import random
from typing import Any, NamedTuple

from stoker.proto import limits, messages, work
from stoker.proto.messages import Message
from stoker.proto.model import Role

TICKET = bytes(range(16))
IDENTITY = ["5ae0a3c1-8a2e-4e65-a7f3-2f1b0a9c7d11", 1, 4242, 123456, "0123456789abcdef"]

HELLO_WORK = messages.Hello(1, "work", "h-worker", [], b"", ["h-kind"], 2)
"""Without a ticket, on purpose: the broker may kill a worker that showed one, and this is our own process."""

HELLO_POOL = work.Pool(1, "h-pool", TICKET, IDENTITY, [{"kind": "h-kind", "queue": "h-queue"}])


def introduction(role: Role, rng: random.Random) -> Message:
    """What a connection says first, so that everything after is of its role."""
    if role is Role.SUPERVISE:
        nonce = rng.randbytes(8).hex()
        return HELLO_POOL._replace(ticket=rng.randbytes(16), identity=[*IDENTITY[:4], nonce])
    return HELLO_WORK if role is Role.WORK else messages.Why("h-1")


CLIENT: tuple[Message, ...] = (
    messages.Enqueue("h-1", "h-kind", b"p"),
    messages.Enqueue("h-2", "h-other", b"payload", False, "h-queue", 5, 10),
    messages.Enqueue("h-3", "h-kind", b"\0" * 300, headers={"h": "v"}),
    messages.Cancel("h-1"),
    messages.Kick("h-2"),
    messages.Kick(None, "h-queue", 3),
    messages.Drop("h-1"),
    messages.Drop(None, "h-queue", 3),
    messages.Show("h-1"),
    messages.Jobs("h-queue", None, None, 0, 3),
    messages.Why("h-3"),
    messages.Wait("h-1", 0),
    messages.Pause("h-queue"),
    messages.Resume("h-queue"),
    messages.Help(),
)
WORKER: tuple[Message, ...] = (
    work.Ack([1, 1], b"result"),
    work.Nack([1, 2], "error", "reason", "report"),
    work.Release([1, 3], "released"),
    work.Heartbeat([[1, 4]]),
)
SUPERVISOR: tuple[Message, ...] = (
    work.Heartbeat([], ["0123456789abcdef"]),
    work.Exited("0123456789abcdef", [[1, 5]], 1, None),
)
RIGHT: dict[Role, tuple[Message, ...]] = {
    Role.ADMIN: CLIENT,
    Role.WORK: WORKER,
    Role.SUPERVISE: SUPERVISOR,
}
"""What each role may say at any time, and gets an answer to. Not `pool` with this ticket: a supervisor
that says it takes the place of the one who said it before."""


class Misfit(NamedTuple):
    """A message in which one value is wrong."""

    message: Message
    code: str


_NOT_NAMES: tuple[Any, ...] = (
    True,
    7,
    1.5,
    "",
    "a" * 129,
    "ä",
    "a/b",
    "../x",
    "a b",
    "a\0b",
    "a\n",
    b"a",
    [],
    {},
    ["a"],
)
_NOT_COUNTS: tuple[Any, ...] = (
    True,
    False,
    -1,
    1.0,
    float("nan"),
    float("inf"),
    2**53 + 1,
    2**63,
    "1",
    b"1",
    [],
    [1],
    {},
)
_NOT_FLAGS: tuple[Any, ...] = (0, 1, 1.0, "yes", b"", [], None)
_NOT_TOKENS: tuple[Any, ...] = (
    None,
    1,
    "1",
    [],
    [1],
    [1, 2, 3],
    [True, 1],
    [1.0, 2],
    [-1, 2],
    [2**53 + 1, 1],
    {},
    [[1], 2],
)
_NOT_TEXT: tuple[Any, ...] = (None, 7, True, b"bytes", [], {})

_WRONG: tuple[tuple[Role, Message, str, tuple[Any, ...]], ...] = (
    (Role.ADMIN, CLIENT[0], "id", (*_NOT_NAMES, None)),
    (Role.ADMIN, CLIENT[0], "kind", (*_NOT_NAMES, None)),
    (Role.ADMIN, CLIENT[0], "payload", ("text", 1, True, None, [], {})),
    (Role.ADMIN, CLIENT[0], "fresh", _NOT_FLAGS),
    (Role.ADMIN, CLIENT[0], "queue", _NOT_NAMES),
    (Role.ADMIN, CLIENT[0], "priority", (True, False, 1.0, float("nan"), 10**6 + 1, -(10**6) - 1, "1", [])),
    (Role.ADMIN, CLIENT[0], "delay_ms", (*_NOT_COUNTS, limits.DURATION_MS_MAX + 1)),
    (Role.ADMIN, CLIENT[0], "run_at_ms", _NOT_COUNTS),
    (Role.ADMIN, CLIENT[0], "attempts_max", (*_NOT_COUNTS, 0, 100_001)),
    (Role.ADMIN, CLIENT[0], "lease_ms", (*_NOT_COUNTS, 0, 99, limits.LEASE_MS_MAX + 1)),
    (
        Role.ADMIN,
        CLIENT[0],
        "headers",
        ([], "a", 1, True, {"a": 1}, {"a/b": "x"}, {"": "x"}, {"a": "x" * 1025}, {"a": b"x"}, {"a": None}),
    ),
    (Role.ADMIN, CLIENT[0], "headers", ({f"h{number}": "" for number in range(33)},)),
    (Role.ADMIN, messages.Cancel("h"), "id", (*_NOT_NAMES, None)),
    (Role.ADMIN, messages.Kick("h"), "limit", (*_NOT_COUNTS, 0, 1001, None)),
    (Role.ADMIN, messages.Drop("h"), "queue", _NOT_NAMES),
    (Role.ADMIN, messages.Show("h"), "payload", _NOT_FLAGS),
    (Role.ADMIN, messages.Jobs(), "state", (True, 1, "leasedd", "LEASED", "", b"done", [], {})),
    (Role.ADMIN, messages.Jobs(), "after", (*_NOT_COUNTS, None)),
    (Role.ADMIN, messages.Jobs(), "limit", (*_NOT_COUNTS, 0, 1001, None)),
    (Role.ADMIN, messages.Wait("h", 0), "timeout_ms", _NOT_COUNTS),
    (Role.ADMIN, messages.Pause("h"), "queue", _NOT_NAMES),
    (Role.ADMIN, messages.Snapshot("h"), "name", (*_NOT_NAMES, None, ".", "..", ".hidden")),
    (Role.WORK, WORKER[0], "token", _NOT_TOKENS),
    (Role.WORK, WORKER[0], "result", ("text", 1, True, [], {})),
    (Role.WORK, WORKER[0], "duration_ms", (*_NOT_COUNTS, None)),
    (Role.WORK, WORKER[0], "output", (7, True, b"bytes", [], "x" * (limits.OUTPUT_BYTES_MAX + 1))),
    (Role.WORK, WORKER[1], "outcome", (True, 1, "ok", "lost", "", b"error", None, [])),
    (Role.WORK, WORKER[1], "reason", (*_NOT_TEXT, "x" * (limits.REASON_BYTES_MAX + 1))),
    (Role.WORK, WORKER[1], "signal", (True, 0, 129, -1, 1.0, "9")),
    (Role.WORK, WORKER[1], "status", (True, 256, -1, 1.0, "9")),
    (Role.WORK, WORKER[2], "reason", (True, 1, "error", "", None, b"released")),
    (Role.WORK, WORKER[3], "tokens", (None, 1, "1", [1], [[1]], [[True, 1]], [None], {})),
    (Role.SUPERVISE, SUPERVISOR[0], "workers", (None, 1, [1], ["short"], ["a/b-4567-x"], [True], {})),
    (Role.SUPERVISE, SUPERVISOR[1], "worker", (None, 1, True, "short", "x" * 65, "a/b-45678", b"0123456789")),
    (Role.SUPERVISE, SUPERVISOR[1], "tokens", (None, [1], [[True, 1]], [[1, -1]], {})),
    (Role.SUPERVISE, SUPERVISOR[1], "kill_token", _NOT_TOKENS[1:]),
    (Role.SUPERVISE, SUPERVISOR[1], "shutdown", _NOT_FLAGS),
    (Role.SUPERVISE, HELLO_POOL, "ticket", (None, 1, "text", b"", b"x" * 15)),
    (
        Role.SUPERVISE,
        HELLO_POOL,
        "identity",
        ([], None, ["a"], [1, 2, 3, 4, 5], [*IDENTITY[:4], "a/b-45678"]),
    ),
    (
        Role.SUPERVISE,
        HELLO_POOL,
        "kinds",
        (None, 1, [1], [{}], [{"kind": 1}], [{"kind": "a/b"}], [{"kind": "k", "priority": True}]),
    ),
)


def _misfits() -> dict[Role, list[Misfit]]:
    found: dict[Role, list[Misfit]] = {role: [] for role in RIGHT}
    for role, message, field, values in _WRONG:
        named: Any = message
        found[role] += [Misfit(named._replace(**{field: value}), "bad_message") for value in values]
    pool: Any = HELLO_POOL
    found[Role.SUPERVISE].append(Misfit(pool._replace(ticket=b"x" * 17), "payload_too_large"))
    large = bytes(limits.RESULT_BYTES_MAX + 1)
    found[Role.WORK].append(Misfit(work.Ack([1, 1], large), "payload_too_large"))
    return found


MISFITS = _misfits()
"""By the role whose connection may say such a message at all."""
