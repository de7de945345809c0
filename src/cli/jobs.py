"""`stoker jobs`: list jobs by number, a page at a time."""

from collections.abc import Mapping
from typing import Any

import click

from ..proto import limits
from ..proto.model import State
from .escape import escape, shorten
from .moment import instant
from .options import json_option, open_client, socket_option
from .output import json_text, put, put_lines, say, table

_HEADS = ("number", "id", "kind", "queue", "state", "priority", "attempt", "created", "reason")
_REASON_LENGTH = 60


@click.command()
@click.option("--queue", help="Only of this queue.")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only in this state.")
@click.option("--kind", help="Only of this kind.")
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
    while True:
        page = client.jobs_page(queue=queue, state=state, kind=kind, after=after, limit=limit)
        if as_json:
            put_lines(json_text(job) for job in page.jobs)
        elif page.jobs:
            put_lines(
                table(_HEADS, [_row(job) for job in page.jobs], frozenset({"number", "priority", "attempt"}))
            )
        after = page.after
        if not after:
            return
        if not is_all:
            say(f"more: --after {after}, or --all")
            return
        if not as_json:
            put("")


def _row(job: Mapping[str, Any]) -> list[str]:
    plain = [escape(str(job.get(name, "-"))) for name in _HEADS[:7]]
    reason = str(job.get("reason") or "")
    return [*plain, instant(job.get("created_at_ms")), shorten(reason, _REASON_LENGTH)]
