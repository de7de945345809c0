"""Rules: what one field of a message may hold, checked by hand and strictly.

`type(x) is int`, never `isinstance`, because True is an int. A value out of range is refused by the
name of its field (see `ops.build`), never changed. No field holds a float, so NaN and infinities
are refused wherever they appear. Unknown keys of a map are ignored, as unknown fields are.
"""

import re
from collections.abc import Callable
from typing import Any

from . import limits
from .codec import is_exactly
from .model import Role, State


class Rule:
    """What one field may hold: `accepts` decides, `says` tells a person.

    `is_bytes` marks opaque data, which JSON must spell differently; too much of it is refused as
    `payload_too_large`, because that is what callers can do something about.
    """

    __slots__ = ("accepts", "bytes_max", "is_bytes", "says")

    def __init__(self, says: str, accepts: Callable[[Any], bool], bytes_max: int | None = None) -> None:
        self.says = says
        self.accepts = accepts
        self.is_bytes = bytes_max is not None
        self.bytes_max = bytes_max


_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.NAME_BYTES_MAX}}}").fullmatch
_NONCE = re.compile(r"[A-Za-z0-9-]{8,64}").fullmatch


def is_name(value: Any) -> bool:
    """Job ids, queues and kinds: 1 to 128 of `[A-Za-z0-9._:-]`."""
    return type(value) is str and _NAME(value) is not None


def is_nonce(value: Any) -> bool:
    """Also the boot id. No `/`: these are joined with it to the worker's identity text."""
    return type(value) is str and _NONCE(value) is not None


def _is_text(value: Any, bytes_max: int) -> bool:
    if type(value) is not str or len(value) > bytes_max:
        return False
    try:
        return len(value.encode()) <= bytes_max
    except UnicodeEncodeError:
        # JSON can spell half of a surrogate pair, which no file and no other encoder would take.
        return False


def integer(low: int, high: int, unit: str = "") -> Rule:
    """An integer in a range, both ends included."""
    return Rule(f"an integer{unit} from {low} to {high}", lambda v: type(v) is int and low <= v <= high)


def text(bytes_max: int) -> Rule:
    """Unicode text, measured in UTF-8."""
    return Rule(f"text of at most {bytes_max} bytes", lambda v: _is_text(v, bytes_max))


def data(bytes_max: int) -> Rule:
    """Opaque bytes."""
    return Rule(f"bytes, at most {bytes_max}", lambda v: type(v) is bytes and len(v) <= bytes_max, bytes_max)


def word(*words: str) -> Rule:
    """One of a few words."""
    # A plain str even where the words are members of an enum: those hash alike.
    allowed = frozenset(words)
    return Rule("one of " + ", ".join(words), lambda v: type(v) is str and v in allowed)


def maybe(rule: Rule) -> Rule:
    """What `rule` accepts, or nothing (nil, null)."""
    accepts = rule.accepts
    return Rule(f"{rule.says}, or nothing", lambda v: v is None or accepts(v), rule.bytes_max)


def listing(rule: Rule, count_max: int) -> Rule:
    """A list of things that `rule` accepts."""
    accepts = rule.accepts
    return Rule(
        f"a list of at most {count_max}, each {rule.says}",
        lambda v: is_exactly(v, list) and len(v) <= count_max and all(map(accepts, v)),
    )


def _is_token(value: Any) -> bool:
    return is_exactly(value, list) and len(value) == 2 and _are_counts(value)


def _are_counts(values: Any) -> bool:
    return all(type(part) is int and 0 <= part <= limits.INTEGER_MAX for part in values)


def _is_held(value: Any) -> bool:
    return (
        is_exactly(value, list)
        and len(value) == 3
        and _are_counts(value[:2])
        and type(value[2]) is str
        and value[2] in ("running", "unstarted", "finished")
    )


def _is_queue_weight(value: Any) -> bool:
    return (
        is_exactly(value, list)
        and len(value) == 2
        and is_name(value[0])
        and type(value[1]) is int
        and 0 <= value[1] <= limits.WEIGHT_MAX
    )


def _is_identity(value: Any) -> bool:
    return (
        is_exactly(value, list)
        and len(value) == 5
        and is_nonce(value[0])
        and _are_counts(value[1:4])
        and is_nonce(value[4])
    )


def _is_ticket(value: Any) -> bool:
    return type(value) is bytes and len(value) == limits.TICKET_BYTES


def _are_headers(value: Any) -> bool:
    return (
        is_exactly(value, dict)
        and len(value) <= limits.HEADERS_MAX
        and all(is_name(key) and _is_text(item, limits.HEADER_BYTES_MAX) for key, item in value.items())
    )


NAME = Rule("1 to 128 characters of A-Z a-z 0-9 . _ : -", is_name)
FLAG = Rule("true or false", lambda v: type(v) is bool)
TOKEN = Rule("[epoch, counter]", _is_token)
HELD = Rule("[epoch, counter, running | unstarted | finished]", _is_held)
QUEUE_WEIGHT = Rule(f"[queue, weight from 0 to {limits.WEIGHT_MAX}]", _is_queue_weight)
NONCE = Rule("8 to 64 characters of A-Z a-z 0-9 -", is_nonce)
IDENTITY = Rule("[boot id, pid namespace, pid, start ticks, nonce]", _is_identity)
IDENTITY_OR_EMPTY = Rule(f"empty, or {IDENTITY.says}", lambda v: v == [] or _is_identity(v))
TICKET = Rule(f"{limits.TICKET_BYTES} bytes", _is_ticket, limits.TICKET_BYTES)
TICKET_OR_EMPTY = Rule(f"empty, or {TICKET.says}", lambda v: v == b"" or _is_ticket(v), limits.TICKET_BYTES)
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
PAGE = integer(1, limits.JOBS_PAGE_MAX)
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

KIND_POLICY: dict[str, Rule] = {**POLICY, "dead_kind": NAME}
"""What a kind may declare. `dead_kind`: a job of that kind is made when one of this becomes dead."""


def _is_kind(value: Any) -> bool:
    if not is_exactly(value, dict) or not is_name(value.get("kind")):
        return False
    return all(rule.accepts(value[key]) for key, rule in KIND_POLICY.items() if value.get(key) is not None)


KIND = Rule("a map with `kind` and its policy, each in range", _is_kind)
