"""`stoker enqueue`: store a job and print its id."""

import os
import sys
from typing import Any

import click

from ..proto import limits
from ..proto.errors import PayloadTooLargeError
from .joboptions import as_keywords, job_options
from .options import checked, json_of, name_argument, open_client, socket_option
from .output import put


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
@job_options
@socket_option
def enqueue(
    kind: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    payload: str | None,
    socket: str | None,
    **options: Any,
) -> None:
    """Store a job of KIND and print its id. When this returns, the job is on disk.

    Exit code 7 means that nobody can know whether it was stored: repeat the command with the same
    --id, which the message names.
    """
    if payload is not None and (args is not None or kwargs is not None):
        raise click.UsageError("--payload takes the place of --args and --kwargs.")
    job = open_client(socket).enqueue(
        kind,
        args or (),
        kwargs,
        payload=None if payload is None else payload_of(payload),
        **as_keywords(options),
    )
    put(job.id)


def payload_of(text: str) -> bytes:
    """A text, or all of stdin for `-`. PayloadTooLargeError."""
    if text != "-":
        return os.fsencode(text)
    # One byte more than is allowed, so that too much is noticed without reading all of it.
    payload = sys.stdin.buffer.read(limits.PAYLOAD_BYTES_MAX + 1)
    if len(payload) > limits.PAYLOAD_BYTES_MAX:
        raise PayloadTooLargeError(
            f"stdin holds more than the {limits.PAYLOAD_BYTES_MAX} bytes that a payload may have:"
            " put the data in a file and its path in the job (`stoker run --stdin FILE`)"
        )
    return payload
