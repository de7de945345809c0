"""Commands about the flow of jobs, pause, resume and drain, and the snapshot."""

import click

from ..config.exits import Exit
from ..config.kinds import Kind
from ..proto import rules
from .escape import escape
from .moment import size
from .names import doubt
from .options import checked, duration_option, name_argument, of_kind, open_client, seconds, socket_option
from .output import put, say

_SNAPSHOT = Kind("NAME", rules.SNAPSHOT_NAME.says, rules.SNAPSHOT_NAME.accepts)


@click.command()
@name_argument("queue", required=False)
@socket_option
def pause(queue: str | None, socket: str | None) -> None:
    """Hand out no more jobs of QUEUE, or of any. Running jobs go on. Survives a restart."""
    client = open_client(socket)
    doubt(client, queue)
    client.pause(queue)
    say(f"{_named(queue)} paused; `stoker resume{_argument(queue)}` ends it")


@click.command()
@name_argument("queue", required=False)
@socket_option
def resume(queue: str | None, socket: str | None) -> None:
    """End the pause of QUEUE; without QUEUE that of all queues, and a drain.

    A queue that was paused by its name is resumed by its name only.
    """
    client = open_client(socket)
    doubt(client, queue)
    client.resume(queue)
    if queue is None:
        say("no pause of all queues, no drain any more; a queue that was paused by name stays so")
    else:
        say(f"queue {escape(queue)} resumed")


@click.command()
@duration_option("--timeout", "Wait at most so long. Default: for ever.")
@socket_option
def drain(timeout: int | None, socket: str | None) -> int:
    """Hand out no more jobs, wait until none is running, and print how many still are.

    Exit code 6 if some still run when the time is over. `stoker resume` ends the drain.
    """
    leased_count = open_client(socket).drain(seconds(timeout))
    put(str(leased_count))
    if leased_count == 0:
        return Exit.OK
    say(f"stoker: {leased_count} still running; see `stoker jobs --state leased`")
    return Exit.TIMED_OUT


@click.command()
@click.argument("name", callback=checked(of_kind(_SNAPSHOT)))
@socket_option
def snapshot(name: str, socket: str | None) -> None:
    """Have the broker write a consistent copy of its journal, and print its path."""
    written = open_client(socket).snapshot(name)
    put(escape(written.path))
    say(f"{size(written.size_bytes)} written")


def _named(queue: str | None) -> str:
    return "all queues" if queue is None else f"queue {escape(queue)}"


def _argument(queue: str | None) -> str:
    return "" if queue is None else f" {escape(queue)}"
