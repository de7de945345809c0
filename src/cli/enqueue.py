"""`stoker enqueue`: store a job and print its id."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..config.table import QUEUE_KEYS
from ..proto import limits, rules
from ..proto.errors import PayloadTooLargeError
from .options import (
    NAME,
    F,
    checked,
    duration_option,
    json_of,
    name_argument,
    open_client,
    option_of,
    seconds,
    socket_option,
)
from .output import put

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


@click.command()
@name_argument("kind")
@click.option(
    "--args",
    metavar="LIST",
    callback=checked(json_of(list, "a list")),
    help="Positional arguments, as a JSON list.",
)
@click.option(
    "--kwargs",
    metavar="OBJECT",
    callback=checked(json_of(dict, "an object")),
    help="Keyword arguments, as a JSON object.",
)
@click.option("--payload", metavar="TEXT|-", help="Raw payload in place of arguments; - reads stdin.")
@option_of(NAME, "--id", "Job id: enqueueing the same again gives the same job. Default: a new one.")
@option_of(NAME, "--queue", "Queue. Default: what the kind says.")
@_policy_option("priority", "Lower runs first; 0 if nobody says.")
@duration_option("--delay", "Not before so much time has passed.")
@click.option(
    "--at",
    metavar="TIME",
    callback=checked(_instant),
    help="Not before this moment (ISO 8601; local without an offset).",
)
@_policy_option("expires", "Dead if it has not started by then.")
@_policy_option("attempts_max", "Attempts before it is dead.")
@_policy_option("crashes_max", "Crashes and losses before it is dead.")
@_policy_option("time_limit", "An attempt that takes longer is ended.")
@_policy_option("lease", "How long a silent worker keeps it.")
@_policy_option("backoff", "Wait before the second attempt; doubles with each.")
@_policy_option("backoff_cap", "The longest wait between attempts.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=TEXT",
    multiple=True,
    callback=checked(_header),
    help="May be given several times.",
)
@duration_option("--room-wait", "Wait so long for room, in a full queue that has overflow=wait.")
@socket_option
def enqueue(
    kind: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    payload: str | None,
    at: Any,
    headers: tuple[tuple[str, str], ...],
    room_wait: int | None,
    socket: str | None,
    **options: Any,
) -> None:
    """Store a job of KIND and print its id. When this returns, the job is on disk.

    Exit code 7 means that nobody can know whether it was stored: repeat the command with the same
    --id, which the message names.
    """
    _refuse_contradictions(options | {"at": at, "payload": payload, "args": args, "kwargs": kwargs}, headers)
    for name in _DURATIONS:
        options[f"{name}_s"] = seconds(options.pop(name))
    job = open_client(socket).enqueue(
        kind,
        args or (),
        kwargs,
        payload=None if payload is None else _payload(payload),
        run_at=at,
        headers=dict(headers) or None,
        wait_s=seconds(room_wait),
        **options,
    )
    put(job.id)


def _refuse_contradictions(given: Mapping[str, Any], headers: Sequence[tuple[str, str]]) -> None:
    """Options that are right by themselves and cannot be meant together."""
    if given["payload"] is not None and (given["args"] is not None or given["kwargs"] is not None):
        raise click.UsageError("--payload takes the place of --args and --kwargs.")
    if given["at"] is not None and given["delay"] is not None:
        raise click.UsageError("Give either --at or --delay.")
    if None not in (base := given["backoff"], cap := given["backoff_cap"]) and cap < base:
        raise click.UsageError("--backoff-cap is below --backoff.")
    names = [name for name, _ in headers]
    if len(names) > limits.HEADERS_MAX:
        raise click.UsageError(f"A job has at most {limits.HEADERS_MAX} headers.")
    if len(set(names)) < len(names):
        raise click.UsageError("Give each --header once.")


def _payload(text: str) -> bytes:
    if text != "-":
        return os.fsencode(text)
    # One byte more than is allowed, so that too much is noticed without reading all of it.
    payload = sys.stdin.buffer.read(limits.PAYLOAD_BYTES_MAX + 1)
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"stdin holds more than the {limits.PAYLOAD_BYTES_MAX} bytes that a payload may have:"
            " put the data in a file and its path in the job"
        )
    return payload
