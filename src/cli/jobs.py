"""`stoker jobs`: list jobs by number, a page at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..proto import limits
from ..proto.model import State
from .escape import escape, shorten
from .moment import instant
from .names import doubt
from .options import NAME, json_option, open_client, option_of, socket_option
from .output import json_text, put, put_lines, say, table
from .width import fitted, terminal_width

_HEADS = ("number", "id", "kind", "queue", "state", "priority", "attempt", "created", "reason")
_REASON_LENGTH = 60
_RIGHT = frozenset({"number", "priority", "attempt"})

_TEXTS = {"reason": 20, "kind": 10, "queue": 8}
_SPARE = ("priority", "created", "attempt", "reason")
"""For narrow terminals: see `width.fitted`. An id is never cut, because it is what the next command needs."""


@click.command()
@option_of(NAME, "--queue", "Only of this queue.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only in this state.")
@option_of(NAME, "--kind", "Only of this kind.")
@click.option(
    "--after", type=click.IntRange(0, limits.INTEGER_MAX), default=0, help="Only numbers above this."
)
@click.option(
    "--limit",
    type=click.IntRange(1, limits.JOBS_PAGE_MAX),
    default=100,
    show_default=True,
    help="Jobs on one page.",
)
@click.option("--all", "is_all", is_flag=True, help="Every page.")
@socket_option
@json_option
def jobs(
    queue: str | None,
    state: str | None,
    kind: str | None,
    after: int,
    limit: int,
    is_all: bool,
    socket: str | None,
    as_json: bool,
) -> None:
    """List jobs, oldest first. Priority: lower runs first. With --json, one line for each job."""
    client = open_client(socket)
    left_out: list[str] = []
    while True:
        page = client.jobs_page(queue=queue, state=state, kind=kind, after=after, limit=limit)
        if not (page.jobs or after):
            doubt(client, queue, kind)
        if as_json:
            put_lines(json_text(job) for job in page.jobs)
        elif page.jobs:
            left_out = _put_page(page.jobs) or left_out
        after = page.after
        if not (after and is_all):
            break
        if not as_json:
            put("")
    if after:
        say(f"more: --after {after}, or --all")
    if left_out:
        say(f"left out for lack of width: {', '.join(left_out)}; --json has them")


def _put_page(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Print them; the heads of the columns that do not fit the terminal."""
    found = fitted(_HEADS, [_row(job) for job in jobs], terminal_width(), texts=_TEXTS, spare=_SPARE)
    put_lines(table(found.heads, found.rows, _RIGHT))
    return found.left_out


def _row(job: Mapping[str, Any]) -> list[str]:
    plain = [escape(str(job.get(name, "-"))) for name in _HEADS[:7]]
    reason = str(job.get("reason") or "")
    return [*plain, instant(job.get("created_at_ms")), shorten(reason, _REASON_LENGTH)]
