"""`stoker enqueue`: store a job and print its id."""

import os
import sys
from typing import Any

import click

from ..proto import limits
from .options import checked, duration_option, json_of, open_client, seconds, socket_option
from .output import put

_DURATIONS = ("delay", "expires", "time_limit", "lease", "backoff", "backoff_cap")
"""Options in milliseconds here whose name in the library is the same with `_s`."""


def _instant(text: str) -> Any:
    """ISO 8601. Without an offset it is local time, as the clock on the wall is."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{error}; write it like 2030-01-31T08:00:00+01:00") from None


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not like name=text")
    return name, value


@click.command()
@click.argument("kind")
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
@click.option("--id", help="Job id: enqueueing the same again gives the same job. Default: a new one.")
@click.option("--queue", help="Queue. Default: what the kind says.")
@click.option("--priority", type=int, help="Lower runs first; 0 if nobody says.")
@duration_option("--delay", "Not before so much time has passed.")
@click.option(
    "--at",
    metavar="TIME",
    callback=checked(_instant),
    help="Not before this moment (ISO 8601; local without an offset).",
)
@duration_option("--expires", "Dead if it has not started by then.")
@click.option("--attempts-max", type=int, help="Attempts before it is dead.")
@click.option("--crashes-max", type=int, help="Crashes and losses before it is dead.")
@duration_option("--time-limit", "An attempt that takes longer is ended.")
@duration_option("--lease", "How long a silent worker keeps it.")
@duration_option("--backoff", "Wait before the second attempt; doubles with each.")
@duration_option("--backoff-cap", "The longest wait between attempts.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=TEXT",
    multiple=True,
    callback=checked(_header),
    help="May be given several times.",
)
@duration_option("--room-wait", "Wait so long for room in a full queue.")
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
    for name in _DURATIONS:
        options[f"{name}_s"] = seconds(options.pop(name))
    if payload is not None and (args is not None or kwargs is not None):
        raise click.UsageError("--payload takes the place of --args and --kwargs.")
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


def _payload(text: str) -> bytes:
    if text != "-":
        return os.fsencode(text)
    # One byte more than is allowed, so that too much is noticed without reading all of it.
    return sys.stdin.buffer.read(limits.PAYLOAD_BYTES_MAX + 1)
