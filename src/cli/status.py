"""`stoker status`: queues, pools, workers, storage and warnings; also when there is no broker."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..config.exits import Exit
from ..proto.errors import BrokerUnreachableError
from .escape import escape
from .failure import error_line
from .moment import instant, size, span
from .options import json_option, of_file, open_client, socket_option
from .output import fields, json_text, put, put_lines, say, table
from .reading import listing, mapping, mappings, text

_COUNTS = ("ready", "scheduled", "leased", "done", "dead", "cancelled")


@click.command()
@click.option("--data", metavar="DIRECTORY", help="Where to look for the last error when no broker runs.")
@socket_option
@json_option
def status(data: str | None, socket: str | None, as_json: bool) -> int:
    """Queues with their counts, pools and workers, storage, and everything that needs a person.

    With no broker running it says so, and why the last one ended if that is on record; exit code 5.
    """
    try:
        report = open_client(socket).status()
    except BrokerUnreachableError as error:
        say(error_line(error))
        last = last_error(data)
        if last:
            say(f"stoker: {last}")
        return Exit.UNREACHABLE
    if as_json:
        put(json_text(report))
    else:
        put_lines(status_lines(report))
    return Exit.OK


def last_error(data: str | None) -> str | None:
    """What the state directory has on record of the last broker's end, on one line."""
    from ..broker.lasterror import START_LOOKS, account, read_last_error
    from ..proto.address import state_directory

    given = data if data is not None else of_file("data")
    directory = state_directory(given, os.environ, os.getuid())
    try:
        error = read_last_error(directory)
    except OSError as failure:
        return f"cannot look for the last error in {escape(directory)}: {failure.strerror}"
    if error is None:
        return None
    recovered = (
        f"; a later start came up, but {START_LOOKS}: see `stoker doctor`" if error.recovered_at_ms else ""
    )
    return (
        f"last error in {escape(directory)}, {instant(error.at_ms) or 'at an unknown time'}: "
        f"{escape(account(error))}{recovered}"
    )


def status_lines(report: Mapping[str, Any]) -> list[str]:
    """The report for a person. A key that a broker of another release lacks leaves its part out."""
    head = f"stoker {text(report.get('version'), '?')}, epoch {text(report.get('epoch'), '?')}"
    since = instant(report.get("started_at_ms"))
    if since:
        head += f", up since {since}"
    if report.get("draining"):
        head += ", draining (`stoker resume` ends it)"
    if report.get("paused_all"):
        head += ", all queues paused (`stoker resume` ends it)"
    parts = [
        [head],
        _queues(mapping(report.get("queues"))),
        _pools(mappings(report.get("pools"))),
        _workers(mappings(report.get("workers"))),
        _storage(mapping(report.get("storage")), text(report.get("data"))),
        [f"warning: {text(warning)}" for warning in listing(report.get("warnings"))],
    ]
    lines: list[str] = []
    for part in filter(None, parts):
        lines += ["", *part] if lines else part
    return lines


def _queues(queues: Mapping[str, Any]) -> list[str]:
    rows: list[list[str]] = []
    for name, value in sorted(queues.items()):
        queue = mapping(value)
        rows.append(
            [
                escape(name),
                *(text(queue.get(count, 0)) for count in _COUNTS),
                span(queue.get("oldest_ready_ms")) if queue.get("ready") else "-",
                size(queue.get("bytes", 0)),
                "paused" if queue.get("paused") else "",
            ]
        )
    if not rows:
        return ["no queues yet"]
    heads = ["queue", *_COUNTS, "oldest ready", "bytes", ""]
    return table(heads, rows, frozenset(heads[1:-1]))


def _pools(pools: Sequence[Mapping[str, Any]]) -> list[str]:
    if not pools:
        return ["no pool of workers is connected; start one with `stoker pool APP`"]
    rows = [
        [
            text(pool.get("name"), "-"),
            text(pool.get("workers"), "-"),
            "connected" if pool.get("connected", True) else "disconnected",
            text(pool.get("code"), "-"),
            _joined(pool, "kinds"),
        ]
        for pool in pools
    ]
    return table(["pool", "workers", "state", "code", "kinds"], rows, frozenset({"workers"}))


def _workers(workers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            text(worker.get("name"), "-"),
            text(worker.get("pid"), "-"),
            text(worker.get("state"), "-"),
            _joined(worker, "jobs"),
        ]
        for worker in workers
    ]
    return table(["worker", "pid", "state", "jobs"], rows, frozenset({"pid"})) if rows else []


def _joined(row: Mapping[str, Any], name: str) -> str:
    """A list of a row, and how many more there are."""
    words = [str(word) for word in listing(row.get(name))]
    if left_out := row.get(f"{name}_left_out"):
        words.append(f"and {left_out} more")
    return text(", ".join(words), "-")


def _storage(storage: Mapping[str, Any], directory: str) -> list[str]:
    pairs = [("directory", directory)]
    for name, value in storage.items():
        label = name.replace("_", " ")
        if name.endswith("_bytes"):
            pairs.append((label.removesuffix(" bytes"), size(value)))
        elif name.endswith("_at_ms"):
            pairs.append((label.removesuffix(" at ms"), instant(value)))
        else:
            pairs.append((label, text(value)))
    lines = fields(pairs)
    return ["storage", *(f"  {line}" for line in lines)] if lines else []
