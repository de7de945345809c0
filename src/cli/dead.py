"""Commands about finished jobs: kick revives the dead, drop deletes."""

import click

from ..proto import limits
from .options import open_client, socket_option
from .output import put

_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, limits.JOBS_PAGE_MAX),
    default=limits.JOBS_PAGE_MAX,
    show_default=True,
    help="At most so many jobs of the queue, oldest first.",
)


@click.command()
@click.argument("id", required=False)
@click.option("--queue", help="The dead jobs of this queue.")
@_LIMIT
@socket_option
def kick(id: str | None, queue: str | None, limit: int, socket: str | None) -> None:
    """Revive dead job ID, or the dead jobs of a queue, and print how many.

    They go to the end of their queue with all their attempts before them; their history is kept.
    """
    _one_or_queue(id, queue)
    put(str(open_client(socket).kick(id, queue=queue, limit=limit)))


@click.command()
@click.argument("id", required=False)
@click.option("--queue", help="The dead jobs of this queue.")
@_LIMIT
@socket_option
def drop(id: str | None, queue: str | None, limit: int, socket: str | None) -> None:
    """Delete finished job ID, or the dead jobs of a queue, and print how many."""
    _one_or_queue(id, queue)
    put(str(open_client(socket).drop(id, queue=queue, limit=limit)))


def _one_or_queue(id: str | None, queue: str | None) -> None:
    if (id is None) == (queue is None):
        raise click.UsageError("Give either the ID of a job or --queue.")
