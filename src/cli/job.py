"""Commands about one job: wait, why, cancel."""

import click

from ..config.exits import Exit
from .escape import escape
from .options import duration_option, json_option, name_argument, open_client, seconds, socket_option
from .output import json_text, put, say


@click.command()
@name_argument("id")
@duration_option("--timeout", "Wait at most so long. Default: for ever.")
@socket_option
@json_option
def wait(id: str, timeout: int | None, socket: str | None, as_json: bool) -> int:
    """Wait until job ID is done, dead or cancelled, and print its result as JSON: `null` if it has none.

    Exit code 0 if it is done, 8 if it ended without success, 6 if the time ran out first.
    """
    outcome = open_client(socket).wait(id, timeout_s=seconds(timeout))
    if as_json:
        put(json_text(outcome._asdict()))
    elif outcome.is_done:
        put(json_text(outcome.result))
    if outcome.is_done:
        return Exit.OK
    if not outcome.is_finished:
        say(f"stoker: {id} is still {escape(outcome.state)}; see `stoker why {id}`")
        return Exit.TIMED_OUT
    reason = f": {escape(outcome.reason)}" if outcome.reason else ""
    say(f"stoker: {id} is {escape(outcome.state)}{reason}; see `stoker show {id}`")
    return Exit.JOB_FAILED


@click.command()
@name_argument("id")
@socket_option
@json_option
def why(id: str, socket: str | None, as_json: bool) -> None:
    """Why job ID is where it is and not running, most important first."""
    because = open_client(socket).why(id)
    if as_json:
        put(json_text(because._asdict()))
        return
    put(f"{escape(because.id)} is {escape(because.state)}")
    for reason in because.reasons:
        put(f"  {escape(reason)}")


@click.command()
@name_argument("id")
@socket_option
def cancel(id: str, socket: str | None) -> None:
    """Withdraw job ID and print `cancelled` (nothing of it runs) or `cancelling` (it is being ended)."""
    put(escape(open_client(socket).cancel(id)))
