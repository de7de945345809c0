"""`stoker tail`: what a job's program has said, and says."""

import click

from ..client.sync import Client
from .attached import copy, write
from .escape import escape
from .options import name_argument, open_client, socket_option
from .output import put, say

QUIET_S = 0.1
"""When nothing more comes for so long, that was what there is."""


@click.command()
@name_argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is finished.")
@socket_option
def tail(id: str, follow: bool, socket: str | None) -> None:
    """Print what the program of job ID said last: while it runs on either stream as it comes, afterwards what was kept.

    Whoever reads slowly is told how much he has missed; the program does not wait.
    """
    client = open_client(socket)
    with client.follow(id) as following:
        pieces = following.read(QUIET_S)
        while pieces:
            for piece in pieces:
                write(piece)
            pieces = following.read(QUIET_S)
        if follow and following.state is None:
            copy(client, following, id)
        if following.state is not None and following.attempt == 0:
            _put_kept(client, id)
        elif following.attempt == 0:
            say(f"stoker: {id} is {escape(client.why(id).state)} and has said nothing yet")


def _put_kept(client: Client, id: str) -> None:
    """The output of the last attempt that has any on record."""
    said = [row["output"] for row in client.show(id)["history"] if row.get("output")]
    if said:
        put(said[-1].removesuffix("\n"))
    else:
        say(f"stoker: nothing is kept of what {id} said; see `stoker show {id}`")
