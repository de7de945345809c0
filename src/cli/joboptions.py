"""Options of whatever stores a job: where it goes, when it runs, how often it is tried."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..config.table import QUEUE_KEYS
from ..proto import limits, rules
from .options import NAME, F, checked, duration_option, option_of, seconds

_DURATIONS = ("delay", "expires", "time_limit", "lease", "backoff", "backoff_cap")
"""Options in milliseconds here whose name in the library is the same with `_s`."""


def _instant(text: str) -> Any:
    """ISO 8601. Without an offset it is local time, as the clock on the wall is."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{error}; write it like 2030-01-31T08:00:00+01:00") from None
    if moment.timestamp() < 0:
        raise ValueError(f"{text!r} is before 1970")
    return moment


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not like name=text")
    if not rules.HEADERS.accepts({name: value}):
        raise ValueError(
            f"{text!r:.100} does not fit: a header holds {limits.HEADER_BYTES_MAX} bytes of text"
        )
    return name, value


def _policy_option(key: str, text: str) -> Callable[[F], F]:
    """An option of which a queue has a setting as well: what it may hold is the same."""
    return option_of(QUEUE_KEYS[key].kind, f"--{key.replace('_', '-')}", text)


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option_of(NAME, "--id", "Job id: enqueueing the same again gives the same job. Default: a new one."),
    option_of(NAME, "--queue", "Queue. Default: what the kind says."),
    _policy_option("priority", "Lower runs first; 0 if nobody says."),
    duration_option("--delay", "Not before so much time has passed."),
    click.option(
        "--at",
        metavar="TIME",
        callback=checked(_instant),
        help="Not before this moment (ISO 8601; local without an offset).",
    ),
    _policy_option("expires", "Dead if it has not started by then."),
    _policy_option("attempts_max", "Attempts before it is dead."),
    _policy_option("crashes_max", "Crashes and losses before it is dead."),
    _policy_option("time_limit", "An attempt that takes longer is ended; 1h if nobody says."),
    _policy_option("lease", "How long a silent worker keeps it."),
    _policy_option("backoff", "Wait before the second attempt; doubles with each."),
    _policy_option("backoff_cap", "The longest wait between attempts."),
    click.option(
        "--header",
        "headers",
        metavar="NAME=TEXT",
        multiple=True,
        callback=checked(_header),
        help="May be given several times.",
    ),
    duration_option("--room-wait", "Wait so long for room, in a full queue that has overflow=wait."),
)


def job_options(command: F) -> F:
    """All of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def as_keywords(options: dict[str, Any]) -> dict[str, Any]:
    """What the library calls what was given. UsageError for what cannot be meant together."""
    _refuse_contradictions(options)
    headers, at, room_wait = options.pop("headers"), options.pop("at"), options.pop("room_wait")
    for name in _DURATIONS:
        options[f"{name}_s"] = seconds(options.pop(name))
    return options | {"headers": dict(headers) or None, "run_at": at, "wait_s": seconds(room_wait)}


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    """Options that are right by themselves and cannot be meant together."""
    if given["at"] is not None and given["delay"] is not None:
        raise click.UsageError("Give either --at or --delay.")
    if None not in (base := given["backoff"], cap := given["backoff_cap"]) and cap < base:
        raise click.UsageError("--backoff-cap is below --backoff.")
    headers: Sequence[tuple[str, str]] = given["headers"]
    if len(headers) > limits.HEADERS_MAX:
        raise click.UsageError(f"A job has at most {limits.HEADERS_MAX} headers.")
    if len({name for name, _ in headers}) < len(headers):
        raise click.UsageError("Give each --header once.")
