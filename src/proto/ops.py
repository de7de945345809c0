"""The table of ops: who may use each, what its fields may hold, how long its frame may be.

Numbers and answers come from `messages.OPS` and `work.OPS`, what a field may hold from `rules.py`.
`docs/protocol.md` prints this table and a test holds the two together. Binary frames, JSON lines,
`help`, `decode` and the checks of a peer's input all read it; there is no second list.
"""

from collections.abc import Sequence
from typing import Any

from . import limits, messages, rules, work
from .errors import RemoteProtocolError
from .model import Outcome, Role
from .rules import POLICY, Rule, maybe

VERSION = limits.PROTOCOL_VERSION

SUBMIT = (Role.SUBMIT, Role.ADMIN)
ADMIN = (Role.ADMIN,)
WORK = (Role.WORK,)
SUPERVISE = (Role.SUPERVISE,)
BEATING = (Role.WORK, Role.SUPERVISE)
ANYONE = tuple(Role)
BROKER = ()
"""Pushed by the broker; nobody may send it."""

_REQUIRED = object()
"""Stands where a field has no default. No decoded value is this object."""


class Op:
    """One line of the table."""

    __slots__ = (
        "answer",
        "checks",
        "defaults",
        "frame_bytes_max",
        "items_max",
        "message",
        "name",
        "number",
        "required",
        "roles",
        "rules",
    )

    def __init__(
        self,
        message: type[Any],
        rules: Sequence[Rule],
        roles: Sequence[Role],
        frame_bytes_max: int = limits.CONTROL_FRAME_BYTES_MAX,
        items_max: int = limits.FIELD_ITEMS_MAX,
    ) -> None:
        self.number, self.answer = messages.OPS.get(message) or work.OPS[message]
        self.name = message.__name__.lower()
        self.message = message
        self.rules = tuple(rules)
        self.roles = frozenset(roles)
        self.frame_bytes_max = frame_bytes_max
        self.items_max = items_max
        """Longest list or map that its frame may hold."""
        fields: tuple[str, ...] = message._fields
        assert len(self.rules) == len(fields), self.name
        given: dict[str, Any] = message._field_defaults
        self.required = len(fields) - len(given)
        self.defaults: tuple[Any, ...] = tuple(given.get(name, _REQUIRED) for name in fields)
        self.checks = tuple((rule.accepts, self.defaults[i]) for i, rule in enumerate(self.rules))

    def __repr__(self) -> str:
        return f"<op {self.name}>"


_M, _W = messages, work
_MANY = limits.LIST_ITEMS_MAX
_LISTING_FRAME = limits.LISTING_FRAME_BYTES_MAX
_RESULT_FRAME = limits.RESULT_FRAME_BYTES_MAX
_ENQUEUE_FRAME = limits.ENQUEUE_FRAME_BYTES_MAX
_ONE_OR_QUEUE = (maybe(rules.NAME), maybe(rules.NAME), rules.PAGE)
_TOKENS = rules.listing(rules.TOKEN, limits.LIST_ITEMS_MAX)
_NONCES = rules.listing(rules.NONCE, limits.LIST_ITEMS_MAX)
_FAILURES = rules.word(
    Outcome.ERROR, Outcome.PERMANENT, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.CRASH, Outcome.CANCELLED
)
_RELEASES = rules.word("not_started", Outcome.RELEASED, Outcome.SHUTDOWN)
_KILLS = rules.word(Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.LOST)
_HELLO = (
    rules.COUNT,
    rules.ROLE,
    rules.text(limits.NAME_BYTES_MAX),
    rules.IDENTITY_OR_EMPTY,
    rules.TICKET_OR_EMPTY,
    rules.listing(rules.NAME, limits.LIST_ITEMS_MAX),
    rules.integer(0, limits.SLOTS_MAX),
    rules.listing(rules.HELD, limits.HELD_MAX),
    rules.listing(rules.QUEUE_WEIGHT, limits.POOL_QUEUES_MAX),
    rules.integer(0, limits.PREFETCH_MAX),
)
_ENQUEUE = (
    rules.NAME,
    rules.NAME,
    rules.data(limits.PAYLOAD_BYTES_MAX),
    rules.FLAG,
    maybe(POLICY["queue"]),
    maybe(POLICY["priority"]),
    maybe(rules.DURATION),
    maybe(rules.INSTANT),
    maybe(POLICY["expires_ms"]),
    maybe(POLICY["attempts_max"]),
    maybe(POLICY["crashes_max"]),
    maybe(POLICY["time_limit_ms"]),
    maybe(POLICY["lease_ms"]),
    maybe(POLICY["backoff_ms"]),
    maybe(POLICY["backoff_cap_ms"]),
    maybe(rules.HEADERS),
    maybe(rules.DURATION),
)
_JOBS = (maybe(rules.NAME), maybe(rules.STATE), maybe(rules.NAME), rules.COUNT, rules.PAGE)
_POLICY_OF_STREAM = rules.word(work.KEEP, work.BLOCK)
_JOB = (
    rules.TOKEN,
    rules.NAME,
    rules.COUNT,
    rules.NAME,
    rules.NAME,
    rules.COUNT,
    rules.data(limits.PAYLOAD_BYTES_MAX),
    rules.DURATION,
    rules.LEASE,
    rules.INSTANT,
    maybe(rules.HEADERS),
    maybe(_POLICY_OF_STREAM),
)
_OUTPUT = maybe(rules.text(limits.OUTPUT_BYTES_MAX))
_ACK = (rules.TOKEN, maybe(rules.data(limits.RESULT_BYTES_MAX)), rules.DURATION, _OUTPUT)
_STATUS = maybe(rules.integer(0, 255))
_SIGNAL = maybe(rules.integer(1, 128))
_END = (_SIGNAL, _STATUS, rules.COUNT, rules.COUNT)
"""How the process of one attempt ended: signal, exit status, peak of memory in bytes, CPU time in ms."""

_NACK = (
    rules.TOKEN,
    _FAILURES,
    rules.text(limits.REASON_BYTES_MAX),
    rules.text(limits.REPORT_BYTES_MAX),
    maybe(rules.DURATION),
    rules.DURATION,
    *_END,
    _OUTPUT,
)
_PROGRESS = (
    rules.TOKEN,
    maybe(rules.COUNT),
    maybe(rules.COUNT),
    rules.text(limits.PROGRESS_TEXT_BYTES_MAX),
)
_OUTPUT_CHUNK = (
    rules.TOKEN,
    rules.integer(1, 2),
    rules.integer(0, limits.INTEGER_MAX - limits.OUTPUT_CHUNK_BYTES_MAX),
    rules.data(limits.OUTPUT_CHUNK_BYTES_MAX),
)
_FOLLOW = (
    rules.NAME,
    rules.COUNT,
    rules.COUNT,
    rules.COUNT,
    maybe(rules.DURATION),
    rules.FLAG,
    rules.FLAG,
    rules.FLAG,
)
_POOL = (
    rules.COUNT,
    rules.text(limits.NAME_BYTES_MAX),
    rules.TICKET,
    rules.IDENTITY,
    rules.listing(rules.KIND, limits.LIST_ITEMS_MAX),
    _NONCES,
    rules.text(limits.NAME_BYTES_MAX),
    maybe(rules.word("loading", "starting", "done", "failed")),
    rules.COUNT,
    rules.text(limits.REPORT_BYTES_MAX),
)
_EXITED = (
    rules.NONCE,
    _TOKENS,
    _STATUS,
    _SIGNAL,
    maybe(rules.TOKEN),
    rules.FLAG,
    rules.FLAG,
    rules.COUNT,
    rules.COUNT,
    rules.FLAG,
)

OPS: tuple[Op, ...] = (
    Op(_M.Hello, _HELLO, ANYONE, _LISTING_FRAME, _MANY),
    Op(_M.Help, (), ANYONE),
    Op(_M.Enqueue, _ENQUEUE, SUBMIT, _ENQUEUE_FRAME),
    Op(_M.Cancel, (rules.NAME,), SUBMIT),
    Op(_M.Kick, _ONE_OR_QUEUE, ADMIN),
    Op(_M.Drop, _ONE_OR_QUEUE, ADMIN),
    Op(_M.Show, (rules.NAME, rules.FLAG), SUBMIT),
    Op(_M.Jobs, _JOBS, ADMIN),
    Op(_M.Status, (), SUBMIT),
    Op(_M.Why, (rules.NAME,), SUBMIT),
    Op(_M.Wait, (rules.NAME, maybe(rules.DURATION)), SUBMIT),
    Op(_M.Pause, (maybe(rules.NAME),), ADMIN),
    Op(_M.Resume, (maybe(rules.NAME),), ADMIN),
    Op(_M.Drain, (maybe(rules.DURATION),), ADMIN),
    Op(_M.Snapshot, (rules.SNAPSHOT_NAME,), ADMIN),
    Op(_M.Follow, _FOLLOW, SUBMIT),
    Op(_W.Job, _JOB, BROKER, _ENQUEUE_FRAME),
    Op(_W.Ack, _ACK, WORK, _RESULT_FRAME),
    Op(_W.Nack, _NACK, WORK, _RESULT_FRAME),
    Op(_W.Release, (rules.TOKEN, _RELEASES), WORK),
    Op(_W.Heartbeat, (_TOKENS, _NONCES), BEATING, _LISTING_FRAME, _MANY),
    Op(_W.Progress, _PROGRESS, WORK),
    Op(_W.Output, _OUTPUT_CHUNK, WORK, limits.RESULT_FRAME_BYTES_MAX),
    Op(_W.Stream, (rules.TOKEN, _POLICY_OF_STREAM), BROKER),
    Op(_W.Pool, _POOL, SUPERVISE, limits.POOL_FRAME_BYTES_MAX, _MANY),
    Op(_W.Exited, _EXITED, SUPERVISE, _LISTING_FRAME, _MANY),
    Op(_W.Kill, (rules.NONCE, rules.TOKEN, _KILLS, rules.DURATION), BROKER),
    Op(_W.Recall, (rules.NONCE, rules.TOKEN), BROKER),
    Op(_W.Recalled, (rules.NONCE, rules.TOKEN, maybe(rules.TOKEN)), SUPERVISE),
)
"""Every op, in the order of its number."""

BY_NUMBER: dict[int, Op] = {op.number: op for op in OPS}
BY_NAME: dict[str, Op] = {op.name: op for op in OPS}
BY_MESSAGE: dict[type[Any], Op] = {op.message: op for op in OPS}
"""Requests and pushes by their class. Answers are not in it: `Done` answers many."""


def build(op: Op, fields: list[Any]) -> messages.Message:
    """The checked message from decoded `fields` (which it may shorten).

    RemoteProtocolError names the field that is wrong: `payload_too_large` or `bad_message`.
    """
    count = len(fields)
    if count < op.required:
        missing = op.message._fields[count]
        raise RemoteProtocolError("bad_message", f"{op.name}: field `{missing}` is missing")
    if count > len(op.checks):
        # Fields of a later release: unknown, so ignored.
        del fields[len(op.checks) :]
    # Most fields of most messages are None, True or False by default: `is` spares them a call.
    for value, (accepts, default) in zip(fields, op.checks):  # noqa: B905, `strict` costs 0.2 us a message
        if value is not default and not accepts(value):
            raise _misfit(op, fields)
    message: messages.Message = op.message(*fields)
    return message


def _misfit(op: Op, fields: list[Any]) -> RemoteProtocolError:
    pairs = enumerate(zip(fields, op.checks, strict=False))
    index = next(i for i, (value, (accepts, default)) in pairs if value is not default and not accepts(value))
    rule, name, value = op.rules[index], op.message._fields[index], fields[index]
    if rule.bytes_max is not None and type(value) is bytes and len(value) > rule.bytes_max:
        return RemoteProtocolError(
            "payload_too_large", f"{op.name}: `{name}` has {len(value)} bytes; the limit is {rule.bytes_max}"
        )
    return RemoteProtocolError("bad_message", f"{op.name}: `{name}` must be {rule.says}")
