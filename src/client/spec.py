"""What an application says of a job, in its own units, and the message that becomes of it.

Times are seconds here and milliseconds on the wire. Ranges are the broker's to check, so that there
is one list of them; only what could not even be sent is refused in this file, by its name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..proto.errors import StokerError
from ..proto.ids import uuid7
from ..proto.messages import Enqueue
from ..proto.model import COMMAND
from . import values

# For type checkers alone: to make such a class takes as long as the rest of this file.
if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypedDict

    class EnqueueOptions(TypedDict, total=False):
        """Options of an enqueue; one that is None or left out follows the kind, the queue, the default.

        `payload` are raw bytes in place of args and kwargs. `priority`: lower runs first. `run_at` is a
        datetime with a time zone, or seconds since 1970. `expires_s`: dead if it has not started by
        then. `wait_s`: how long to wait for room in a full queue that lets one wait.
        """

        payload: bytes | None
        id: str | None
        queue: str | None
        priority: int | None
        delay_s: float | None
        run_at: "datetime | float | None"
        expires_s: float | None
        attempts_max: int | None
        crashes_max: int | None
        time_limit_s: float | None
        lease_s: float | None
        backoff_s: float | None
        backoff_cap_s: float | None
        headers: Mapping[str, str] | None
        wait_s: float | None


class OptionError(StokerError, ValueError):
    """An option of an enqueue that cannot be meant. Nothing was sent."""


class JobSpec:
    """One job to be: `kind`, its arguments, and any of the options of an enqueue.

    Everything is checked here, so a wrong one is found where it is made. `message` is what will be
    sent; it has its id already, so sending it twice is safe.
    """

    __slots__ = ("message",)

    def __init__(
        self,
        kind: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.message = enqueue_message(kind, args, kwargs, options)


def require_options(names: Iterable[str], known: Iterable[str] = ()) -> None:
    """TypeError for a name that is no option of an enqueue, or not among those `known`."""
    known = tuple(known) or tuple(_FIELDS)
    for name in names:
        if name not in known:
            raise TypeError(f"{name!r} is no option here; there are {', '.join(known)}")


def options_of_a_handler() -> tuple[str, ...]:
    """Options that go with arguments: all but the raw payload."""
    return tuple(name for name in _FIELDS if name != "payload")


def enqueue_message(
    kind: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Enqueue:
    """The message of an enqueue. Raises before an id exists: OptionError, ValueRefusedError, TypeError."""
    fields: dict[str, Any] = {}
    require_options(options)
    for name, value in options.items():
        field, convert = _FIELDS[name]
        if value is not None:
            fields[field] = value if convert is None else convert(name, value)
    payload = fields.pop("payload", None)
    if payload is None:
        if kind == COMMAND:
            _require_program(args, kwargs)
        payload = values.encode_arguments(args, kwargs)
    elif args or kwargs:
        raise OptionError("payload takes the place of args and kwargs; give one or the other")
    id = fields.pop("id", None)
    if id is None:
        return Enqueue(uuid7(), kind, payload, True, **fields)
    return Enqueue(id, kind, payload, **fields)


def _require_program(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """What no kernel runs is refused before there is a job of it. All else of a command is for its worker to say."""
    argv: Any = args[0] if args else (kwargs or {}).get("argv")
    texts: Sequence[Any] = argv if type(argv) in (list, tuple) else ()
    if not (texts and texts[0] and all(type(text) is str and "\0" not in text for text in texts)):
        raise OptionError(
            f"argv must be a list of texts without zero bytes, the program first, not {argv!r:.100}"
        )


def milliseconds(name: str, seconds: Any) -> int:
    """Whole milliseconds of a number of seconds; OptionError naming the option if it is none."""
    if type(seconds) not in (int, float) or not -1e15 < seconds < 1e15:
        raise OptionError(f"{name} must be a finite number of seconds, not {seconds!r:.100}")
    return round(float(seconds) * 1000)


def _instant(name: str, value: Any) -> int:
    # No import of datetime: whoever has one to give has loaded it, everybody else need not.
    if hasattr(value, "utcoffset"):
        if value.utcoffset() is None:
            raise OptionError(f"{name} must have a time zone, or nobody can say when it is: {value!r}")
        seconds: float = value.timestamp()
        return round(seconds * 1000)
    return milliseconds(name, value)


def _payload(name: str, value: Any) -> bytes:
    if type(value) is not bytes:
        raise OptionError(f"{name} must be bytes, not {type(value).__qualname__}; use args for values")
    values.check_payload(value)
    return value


_FIELDS: dict[str, tuple[str, Callable[[str, Any], Any] | None]] = {
    "payload": ("payload", _payload),
    "id": ("id", None),
    "queue": ("queue", None),
    "priority": ("priority", None),
    "delay_s": ("delay_ms", milliseconds),
    "run_at": ("run_at_ms", _instant),
    "expires_s": ("expires_ms", milliseconds),
    "attempts_max": ("attempts_max", None),
    "crashes_max": ("crashes_max", None),
    "time_limit_s": ("time_limit_ms", milliseconds),
    "lease_s": ("lease_ms", milliseconds),
    "backoff_s": ("backoff_ms", milliseconds),
    "backoff_cap_s": ("backoff_cap_ms", milliseconds),
    "headers": ("headers", None),
    "wait_s": ("wait_ms", milliseconds),
}
"""Option to field of the message, and how its value becomes the wire's."""
