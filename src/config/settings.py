"""Settings of the broker: defaults from `proto.limits`, replaced by what flags say.

Only values are checked here, each refused by its name; whether a path exists or is safe is found
out by whoever opens it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from ..proto import limits
from ..proto.model import Overflow
from .durations import parse_duration, parse_size


class SettingError(ValueError):
    """A setting is wrong; the text names it and says what would be right."""


@attrs.frozen
class QueueSettings:
    """What one queue may hold, and the policy of its jobs where neither enqueue nor kind says."""

    jobs_max: int = limits.QUEUE_JOBS_MAX_DEFAULT
    bytes_max: int = limits.QUEUE_BYTES_MAX_DEFAULT
    dead_max: int = limits.QUEUE_DEAD_MAX_DEFAULT
    overflow: Overflow = Overflow.REJECT
    policy: Mapping[str, int] = attrs.Factory(dict[str, int])


@attrs.frozen
class BrokerSettings:
    """Everything `stoker broker` can be told. Paths are final: see `proto.address`."""

    socket: str
    data: str
    synchronous: str = "FULL"
    queue_default: QueueSettings = QueueSettings()
    queues: Mapping[str, QueueSettings] = attrs.Factory(dict[str, QueueSettings])
    done_kept_ms: int = limits.DONE_KEPT_MS_DEFAULT
    done_kept_max: int = limits.DONE_KEPT_MAX_DEFAULT
    dead_kept_ms: int = limits.DEAD_KEPT_MS_DEFAULT
    dead_kept_max: int = limits.DEAD_KEPT_MAX_DEFAULT
    reconnect_grace_ms: int = limits.RECONNECT_GRACE_MS
    supervisor_grace_ms: int = limits.SUPERVISOR_GRACE_MS
    kill_grace_ms: int = limits.KILL_GRACE_MS
    heartbeat_ms_max: int = limits.HEARTBEAT_MS_MAX
    low_water_bytes: int = limits.LOW_WATER_BYTES

    def __attrs_post_init__(self) -> None:
        # Anything weaker loses acknowledged jobs at a power cut, and OFF could corrupt the file.
        if self.synchronous not in ("FULL", "NORMAL"):
            raise SettingError(f"synchronous: {self.synchronous!r} is neither FULL nor NORMAL")


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # isascii: isdigit alone takes digits of every script.
        if not (text.isascii() and text.isdigit() and low <= int(text[:20]) <= high):
            raise ValueError(f"{text!r} is not a number from {low} to {high}")
        return int(text)

    return parse


def _signed(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = -_count(0, -low)(text[1:]) if text.startswith("-") else _count(0, high)(text)
        return value

    return parse


def _duration(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        duration_ms = parse_duration(text)
        if not low <= duration_ms <= high:
            raise ValueError(f"{text!r} is not from {low} to {high} ms")
        return duration_ms

    return parse


def _overflow(text: str) -> Overflow:
    try:
        return Overflow(text)
    except ValueError:
        raise ValueError(f"{text!r} is none of {', '.join(Overflow)}") from None


_LIMITS: Mapping[str, Callable[[str], Any]] = {
    "jobs_max": _count(0, limits.INTEGER_MAX),
    "bytes_max": parse_size,
    "dead_max": _count(0, limits.INTEGER_MAX),
    "overflow": _overflow,
}
_POLICY: Mapping[str, tuple[str, Callable[[str], int]]] = {
    "priority": ("priority", _signed(limits.PRIORITY_MIN, limits.PRIORITY_MAX)),
    "expires": ("expires_ms", _duration(1, limits.DURATION_MS_MAX)),
    "attempts_max": ("attempts_max", _count(1, limits.ATTEMPTS_MAX_LIMIT)),
    "crashes_max": ("crashes_max", _count(1, limits.ATTEMPTS_MAX_LIMIT)),
    "time_limit": ("time_limit_ms", _duration(1, limits.DURATION_MS_MAX)),
    "lease": ("lease_ms", _duration(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)),
    "backoff": ("backoff_ms", _duration(1, limits.DURATION_MS_MAX)),
    "backoff_cap": ("backoff_cap_ms", _duration(1, limits.DURATION_MS_MAX)),
}
QUEUE_KEYS: tuple[str, ...] = (*_LIMITS, *_POLICY)
"""What may stand before `=` in the settings of a queue."""

_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-")


def parse_queues(flags: Sequence[str]) -> dict[str, QueueSettings]:
    """Queues by name from flags like `mail:jobs_max=100,bytes_max=1MiB,overflow=wait`.

    The last colon before the first `=` ends the name, because names may hold colons themselves.
    """
    queues: dict[str, QueueSettings] = {}
    for flag in flags:
        name, settings = _parse_queue(flag)
        if name in queues:
            raise SettingError(f"queue {name}: given twice")
        queues[name] = settings
    return queues


def _parse_queue(flag: str) -> tuple[str, QueueSettings]:
    name, colon, _ = flag.partition("=")[0].rpartition(":")
    if not colon or not name or len(name) > limits.NAME_BYTES_MAX or not _NAME_CHARACTERS.issuperset(name):
        raise SettingError(f"queue setting {flag!r} is not like mail:jobs_max=100,overflow=wait")
    values: dict[str, Any] = {}
    policy: dict[str, int] = {}
    for pair in flag[len(name) + 1 :].split(","):
        key, _, text = pair.partition("=")
        field = _POLICY[key][0] if key in _POLICY else key
        if field in values or field in policy:
            raise SettingError(f"queue {name}: {key} is given twice")
        try:
            if key in _POLICY:
                policy[field] = _POLICY[key][1](text)
            else:
                values[field] = _limit(key)(text)
        except ValueError as error:
            raise SettingError(f"queue {name}: {key}: {error}") from None
    return name, QueueSettings(policy=policy, **values)


def _limit(key: str) -> Callable[[str], Any]:
    try:
        return _LIMITS[key]
    except KeyError:
        raise ValueError(f"unknown; known are {', '.join(QUEUE_KEYS)}") from None
