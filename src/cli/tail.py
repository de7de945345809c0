"""`stoker tail`: what a job's program has said, and says."""

import time

import click

from ..client.following import Following, Piece
from ..client.sync import Client
from .attached import copy, write
from .escape import escape
from .kept import is_end_only, kept_files, missing
from .options import name_argument, open_client, socket_option
from .output import put, say

QUIET_S = 0.1
"""When nothing more comes for so long, that was what there is."""

ENOUGH_S = 1.0
"""Nor longer than that, if it goes on and on."""


@click.command()
@name_argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is finished.")
@socket_option
def tail(id: str, follow: bool, socket: str | None) -> None:
    """Print what the program of job ID said last: while it runs on either stream as it comes, afterwards what was kept.

    That is all of it, on either stream, if it is in files (`stoker run --keep-output`); else the last 64 KiB of both
    together, on stdout.

    Whoever reads slowly is told how much he has missed; the program does not wait.
    """
    client = open_client(socket)
    with client.follow(id) as following:
        _put_last(following)
        if follow and following.state is None:
            copy(client, following, id)
        if following.state is not None and following.attempt == 0:
            _put_kept(client, id)
        elif following.attempt == 0:
            say(f"stoker: {id} is {escape(client.why(id).state)} and has said nothing yet")


def _put_last(following: Following) -> None:
    """What there is now. What was said before that is no gap: nobody was slow."""
    end_s = time.monotonic() + ENOUGH_S
    begun = set[int]()
    while (pieces := following.read(QUIET_S)) and time.monotonic() < end_s:
        for piece in pieces:
            write(piece if piece.stream in begun else piece._replace(lost_bytes=0))
            begun.add(piece.stream)
    for piece in pieces:
        write(piece)


def _put_kept(client: Client, id: str) -> None:
    """Of the last attempt what is in files; else the output of the last that has any on record."""
    job = client.show(id)
    files = kept_files(client, job)
    for kept in files:
        for data in kept.chunks():
            write(Piece(kept.stream, data))
    if files:
        for line in missing(job):
            say(f"stoker: {escape(line)}")
        return
    said = [row["output"] for row in job["history"] if row.get("output")]
    if said:
        if is_end_only(said[-1]):
            say("stoker: this is the end of it; all of it is kept with `stoker run --keep-output`")
        put(said[-1].removesuffix("\n"))
    else:
        say(f"stoker: nothing is kept of what {id} said; see `stoker show {id}`")
