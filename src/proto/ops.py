"""The table of ops: number, name, who may use it, what each field may hold, what answers it.

`docs/protocol.md` prints this table and a test holds the two together. Binary frames, JSON lines,
`help`, `decode` and the checks of a peer's input all read it; there is no second list.

Checks are by hand and strict (`type(x) is int`, never `isinstance`, because True is an int), and a
value out of range is refused by the name of its field, never changed.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from . import limits, messages, work
from .errors import RemoteProtocolError
from .model import Outcome, Role, State

VERSION = limits.PROTOCOL_VERSION

ANSWER = 0
ERROR = 1
"""Numbers of the two answers: `[0, request id, fields...]`, `[1, request id, code, message, detail]`."""


class Rule:
    """What one field may hold: `accepts` decides, `says` tells a person, `shape` serves JSON."""

    __slots__ = ("accepts", "says", "shape")

    def __init__(self, says: str, accepts: Callable[[Any], bool], shape: str = "plain") -> None:
        self.says = says
        self.accepts = accepts
        self.shape = shape


def integer(low: int, high: int, unit: str = "") -> Rule:
    return Rule(f"an integer{unit} from {low} to {high}", lambda v: type(v) is int and low <= v <= high)


def _is(value: Any, kind: type) -> bool:
    """Exactly of that type. A function, so that checkers do not narrow to a list of unknowns."""
    return type(value) is kind


_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.NAME_BYTES_MAX}}}").fullmatch


def is_name(value: Any) -> bool:
    """Job ids, queues and kinds: 1 to 128 of `[A-Za-z0-9._:-]`."""
    return type(value) is str and _NAME(value) is not None


def text(bytes_max: int) -> Rule:
    return Rule(
        f"text of at most {bytes_max} bytes",
        lambda v: type(v) is str and len(v) <= bytes_max and _utf8_bytes(v) <= bytes_max,
    )


def _utf8_bytes(value: str) -> int:
    return len(value.encode("utf-8", "surrogatepass"))


def data(bytes_max: int) -> Rule:
    return Rule(f"bytes, at most {bytes_max}", lambda v: type(v) is bytes and len(v) <= bytes_max, "bytes")


def word(*words: str) -> Rule:
    allowed = frozenset(words)
    return Rule("one of " + ", ".join(words), lambda v: type(v) is str and v in allowed)


def maybe(rule: Rule) -> Rule:
    accepts = rule.accepts
    return Rule(f"{rule.says}, or nothing", lambda v: v is None or accepts(v), rule.shape)


def listing(rule: Rule, count_max: int) -> Rule:
    accepts = rule.accepts
    return Rule(
        f"a list of at most {count_max}, each {rule.says}",
        lambda v: _is(v, list) and len(v) <= count_max and all(map(accepts, v)),
    )


def _is_token(value: Any) -> bool:
    return (
        _is(value, list)
        and len(value) == 2
        and all(type(part) is int and 0 <= part <= limits.INTEGER_MAX for part in value)
    )


def _is_held(value: Any) -> bool:
    return (
        _is(value, list)
        and len(value) == 3
        and _is_token(value[:2])
        and value[2] in ("running", "unstarted", "finished")
    )


def _is_identity(value: Any) -> bool:
    return (
        _is(value, list)
        and len(value) == 5
        and type(value[0]) is str
        and type(value[4]) is str
        and len(value[0]) <= 64
        and 8 <= len(value[4]) <= 64
        and all(type(part) is int and 0 <= part <= limits.INTEGER_MAX for part in value[1:4])
    )


def _are_headers(value: Any) -> bool:
    return (
        _is(value, dict)
        and len(value) <= limits.HEADERS_MAX
        and all(
            is_name(key) and type(item) is str and _utf8_bytes(item) <= limits.HEADER_BYTES_MAX
            for key, item in value.items()
        )
    )


NAME = Rule("1 to 128 characters of A-Z a-z 0-9 . _ : -", is_name)
FLAG = Rule("true or false", lambda v: type(v) is bool)
TOKEN = Rule("[epoch, counter]", _is_token)
HELD = Rule("[epoch, counter, running | unstarted | finished]", _is_held)
IDENTITY = Rule("[boot id, pid namespace, pid, start ticks, nonce]", _is_identity)
HEADERS = Rule(
    f"a map of at most {limits.HEADERS_MAX} names to text of at most {limits.HEADER_BYTES_MAX} bytes",
    _are_headers,
)
DURATION = integer(0, limits.DURATION_MS_MAX, " (ms)")
DURATION_POSITIVE = integer(1, limits.DURATION_MS_MAX, " (ms)")
INSTANT = integer(0, limits.INTEGER_MAX, " (ms since 1970)")
COUNT = integer(0, limits.INTEGER_MAX)
PRIORITY = integer(limits.PRIORITY_MIN, limits.PRIORITY_MAX)
ATTEMPTS = integer(1, limits.ATTEMPTS_MAX_LIMIT)
LEASE = integer(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX, " (ms)")
NONCE = text(64)
STATE = word(*State)
ROLE = word(*Role)
SNAPSHOT_NAME = Rule(
    "1 to 128 characters of A-Z a-z 0-9 . _ : -, not beginning with a dot",
    lambda v: is_name(v) and not v.startswith("."),
)

POLICY: dict[str, Rule] = {
    "queue": NAME,
    "priority": PRIORITY,
    "expires_ms": DURATION_POSITIVE,
    "attempts_max": ATTEMPTS,
    "crashes_max": ATTEMPTS,
    "time_limit_ms": DURATION_POSITIVE,
    "lease_ms": LEASE,
    "backoff_ms": DURATION_POSITIVE,
    "backoff_cap_ms": DURATION_POSITIVE,
}
"""What a kind may declare, and an enqueue may say for one job."""


def _is_kind(value: Any) -> bool:
    if not _is(value, dict) or not is_name(value.get("kind")):
        return False
    # Keys of a later release are ignored, as unknown fields are.
    return all(rule.accepts(value[key]) for key, rule in POLICY.items() if value.get(key) is not None)


KIND = Rule("a map with `kind` and its policy, each in range", _is_kind)


class Op:
    """One line of the table."""

    __slots__ = ("answer", "frame_bytes_max", "message", "name", "number", "required", "roles", "rules")

    def __init__(
        self,
        number: int,
        name: str,
        message: type[Any],
        rules: Sequence[Rule],
        answer: type[Any] | None,
        roles: Sequence[Role],
        frame_bytes_max: int = limits.CONTROL_FRAME_BYTES_MAX,
    ) -> None:
        self.number = number
        self.name = name
        self.message = message
        self.rules = tuple(rules)
        self.answer = answer
        self.roles = frozenset(roles)
        self.frame_bytes_max = frame_bytes_max
        self.required = len(message._fields) - len(message._field_defaults)
        assert len(self.rules) == len(message._fields), name


SUBMIT = (Role.SUBMIT, Role.ADMIN)
ADMIN = (Role.ADMIN,)
WORK = (Role.WORK,)
SUPERVISE = (Role.SUPERVISE,)
ANYONE = tuple(Role)
BROKER = ()
"""Pushed by the broker; nobody may send it."""

_M, _W = messages, work
_PAGE = integer(1, limits.JOBS_PAGE_MAX)
_TOKENS = listing(TOKEN, limits.LIST_ITEMS_MAX)
_FAILURES = word(Outcome.ERROR, Outcome.PERMANENT, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.CANCELLED)
_RELEASES = word("not_started", Outcome.RELEASED, Outcome.SHUTDOWN)
_KILLS = word(Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.LOST)
_REASON = text(limits.REASON_BYTES_MAX)
_REPORT = text(limits.REPORT_BYTES_MAX)
_RESULT = maybe(data(limits.RESULT_BYTES_MAX))
_KINDS = listing(KIND, limits.LIST_ITEMS_MAX)
_HELLO = (
    COUNT,
    ROLE,
    text(128),
    Rule(f"empty, or {IDENTITY.says}", lambda v: v == [] or _is_identity(v)),
    data(16),
    listing(NAME, limits.LIST_ITEMS_MAX),
    integer(0, limits.SLOTS_MAX),
    listing(HELD, limits.HELD_MAX),
)
_ENQUEUE = (
    NAME,
    NAME,
    data(limits.PAYLOAD_BYTES_MAX),
    FLAG,
    maybe(POLICY["queue"]),
    maybe(POLICY["priority"]),
    maybe(DURATION),
    maybe(INSTANT),
    maybe(POLICY["expires_ms"]),
    maybe(POLICY["attempts_max"]),
    maybe(POLICY["crashes_max"]),
    maybe(POLICY["time_limit_ms"]),
    maybe(POLICY["lease_ms"]),
    maybe(POLICY["backoff_ms"]),
    maybe(POLICY["backoff_cap_ms"]),
    maybe(HEADERS),
    maybe(DURATION),
)
_JOB = (
    TOKEN,
    NAME,
    COUNT,
    NAME,
    NAME,
    COUNT,
    data(limits.PAYLOAD_BYTES_MAX),
    DURATION,
    LEASE,
    INSTANT,
    maybe(HEADERS),
)
_EXITED = (
    NONCE,
    maybe(TOKEN),
    maybe(integer(0, 255)),
    maybe(integer(1, 128)),
    maybe(TOKEN),
    FLAG,
    FLAG,
    COUNT,
    COUNT,
)

OPS: tuple[Op, ...] = (
    Op(2, "hello", _M.Hello, _HELLO, _M.Welcome, ANYONE),
    Op(3, "help", _M.Help, (), _M.HelpText, ANYONE),
    Op(10, "enqueue", _M.Enqueue, _ENQUEUE, _M.Enqueued, SUBMIT, limits.ENQUEUE_FRAME_BYTES_MAX),
    Op(11, "cancel", _M.Cancel, (NAME,), _M.Cancelled, SUBMIT),
    Op(12, "kick", _M.Kick, (maybe(NAME), maybe(NAME), _PAGE), _M.Counted, ADMIN),
    Op(13, "drop", _M.Drop, (maybe(NAME), maybe(NAME), _PAGE), _M.Counted, ADMIN),
    Op(14, "show", _M.Show, (NAME, FLAG), _M.Shown, SUBMIT),
    Op(15, "jobs", _M.Jobs, (maybe(NAME), maybe(STATE), maybe(NAME), COUNT, _PAGE), _M.JobsPage, ADMIN),
    Op(16, "status", _M.Status, (), _M.StatusReport, SUBMIT),
    Op(17, "why", _M.Why, (NAME,), _M.Because, SUBMIT),
    Op(18, "wait", _M.Wait, (NAME, maybe(DURATION)), _M.Waited, SUBMIT),
    Op(19, "pause", _M.Pause, (maybe(NAME),), _M.Done, ADMIN),
    Op(20, "resume", _M.Resume, (maybe(NAME),), _M.Done, ADMIN),
    Op(21, "drain", _M.Drain, (maybe(DURATION),), _M.Drained, ADMIN),
    Op(22, "snapshot", _M.Snapshot, (SNAPSHOT_NAME,), _M.SnapshotWritten, ADMIN),
    Op(40, "job", _W.Job, _JOB, None, BROKER, limits.ENQUEUE_FRAME_BYTES_MAX),
    Op(41, "ack", _W.Ack, (TOKEN, _RESULT, DURATION), _M.Done, WORK, limits.RESULT_FRAME_BYTES_MAX),
    Op(42, "nack", _W.Nack, (TOKEN, _FAILURES, _REASON, _REPORT, maybe(DURATION), DURATION), _M.Done, WORK),
    Op(43, "release", _W.Release, (TOKEN, _RELEASES), _M.Done, WORK),
    Op(
        44,
        "heartbeat",
        _W.Heartbeat,
        (_TOKENS, listing(NONCE, limits.LIST_ITEMS_MAX)),
        _W.Wishes,
        (Role.WORK, Role.SUPERVISE),
    ),
    Op(
        50,
        "pool",
        _W.Pool,
        (COUNT, text(128), data(16), IDENTITY, _KINDS, listing(NONCE, limits.LIST_ITEMS_MAX)),
        _M.Welcome,
        SUPERVISE,
        limits.FRAME_BYTES_MAX,
    ),
    Op(51, "exited", _W.Exited, _EXITED, _M.Done, SUPERVISE),
    Op(52, "kill", _W.Kill, (NONCE, TOKEN, _KILLS, DURATION), None, BROKER),
)
"""Every op. 23 to 26 are kept for move, result, watch and reload; 45 and 46 for progress and output."""

BY_NUMBER: dict[int, Op] = {op.number: op for op in OPS}
BY_NAME: dict[str, Op] = {op.name: op for op in OPS}
BY_MESSAGE: dict[type[Any], Op] = {op.message: op for op in OPS}


def build(op: Op, fields: list[Any]) -> messages.Message:
    """The checked message from decoded `fields`; RemoteProtocolError(`bad_message`) names the field."""
    rules = op.rules
    if len(fields) < op.required:
        missing = op.message._fields[len(fields)]
        raise RemoteProtocolError("bad_message", f"{op.name}: field `{missing}` is missing")
    if len(fields) > len(rules):
        # Fields of a later release: unknown, so ignored.
        del fields[len(rules) :]
    for index, value in enumerate(fields):
        if not rules[index].accepts(value):
            field = op.message._fields[index]
            raise RemoteProtocolError("bad_message", f"{op.name}: `{field}` must be {rules[index].says}")
    message: messages.Message = op.message._make([*fields, *_defaults(op, len(fields))])
    return message


def _defaults(op: Op, given: int) -> list[Any]:
    if given == len(op.rules):
        return []
    return [op.message._field_defaults[name] for name in op.message._fields[given:]]
