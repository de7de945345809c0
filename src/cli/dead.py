"""Commands about finished jobs: kick revives the dead, drop deletes."""

from typing import TYPE_CHECKING

import click

from ..proto import limits
from .names import doubt
from .options import NAME, name_argument, open_client, option_of, socket_option
from .output import put

if TYPE_CHECKING:
    from ..client.sync import Client

_QUEUE = option_of(NAME, "--queue", "The dead jobs of this queue.")
_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, limits.JOBS_PAGE_MAX),
    default=limits.JOBS_PAGE_MAX,
    show_default=True,
    help="At most so many jobs of the queue, oldest first.",
)


@click.command()
@name_argument("id", required=False)
@_QUEUE
@_LIMIT
@socket_option
def kick(id: str | None, queue: str | None, limit: int, socket: str | None) -> None:
    """Revive dead job ID, or the dead jobs of a queue, and print how many.

    They go to the end of their queue with all their attempts before them; their history is kept.
    """
    _one_or_queue(id, queue)
    client = open_client(socket)
    _put_count(client, queue, client.kick(id, queue=queue, limit=limit))


@click.command()
@name_argument("id", required=False)
@_QUEUE
@_LIMIT
@socket_option
def drop(id: str | None, queue: str | None, limit: int, socket: str | None) -> None:
    """Delete finished job ID, or the dead jobs of a queue, and print how many."""
    _one_or_queue(id, queue)
    client = open_client(socket)
    _put_count(client, queue, client.drop(id, queue=queue, limit=limit))


def _put_count(client: "Client", queue: str | None, count: int) -> None:
    put(str(count))
    if not count:
        doubt(client, queue)


def _one_or_queue(id: str | None, queue: str | None) -> None:
    if (id is None) == (queue is None):
        raise click.UsageError("Give either the ID of a job or --queue.")
