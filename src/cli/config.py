"""`stoker config`: the settings as the daemons would have them, and where each came from."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import click

from ..config.durations import format_size
from ..config.exits import Exit
from ..config.settings import PoolSettings, broker_settings, pool_settings
from ..config.sources import DEFAULT, Effective, Said
from ..config.table import (
    ACCESS,
    BROKER,
    LOG,
    POOL,
    QUEUE_SETTINGS,
    QUEUES,
    SETTINGS,
    TABLES,
    Setting,
    text_of,
)
from .options import json_option
from .output import counted, json_text, put, put_lines, table
from .settingflags import effective_of, setting_flags


class Row(NamedTuple):
    """One setting as it is."""

    name: str
    value: Any
    """As a file would have it; None where something else decides."""
    text: str
    origin: str


@click.command()
@setting_flags(BROKER, QUEUES, ACCESS, POOL, LOG)
@json_option
def config(as_json: bool, **flags: Any) -> int:
    """Print every setting, its value, and where that came from.

    Takes the flags of `stoker broker` and `stoker pool`, and reads the file and the environment as they
    do. What is wrong is said line by line, with exit code 78; then no daemon would start either.
    """
    effective = effective_of(flags)
    at = os.environ, os.getuid()
    places = broker_settings(effective, *at)
    pool = pool_settings(effective, *at)
    effective.refuse_mistakes()
    found = {"broker.socket": places.socket, "broker.data": places.data}
    rows = [row for name in TABLES for row in _rows(effective, name, found)]
    if as_json:
        put(json_text(_report(effective, pool, rows)))
    else:
        put_lines(table(("setting", "value", "from"), [(row.name, row.text, row.origin) for row in rows]))
        put_lines(["", f"file: {_shown_file(effective)}", f"memory of all workers: {memory_text(pool)}"])
    return Exit.OK


def _rows(effective: Effective, of: str, found: dict[str, str]) -> Iterator[Row]:
    if of == QUEUES:
        for name, said in sorted(effective.queues.items()):
            for setting in QUEUE_SETTINGS:
                given = said.get(setting.key, Said(setting.default, DEFAULT))
                yield _row(f"{QUEUES}.{name}.{setting.key}", setting, given)
    for setting in SETTINGS:
        if setting.table == of:
            value, origin = effective.values[setting.name]
            yield _row(setting.name, setting, Said(found.get(setting.name, value), origin))


def _row(name: str, setting: Setting, said: Said) -> Row:
    if said.value is None:
        return Row(name, None, f"({setting.default_says})", said.origin)
    shown = setting.kind.show(said.value)
    text = f"({setting.default_says})" if shown == [] and setting.default_says else text_of(shown)
    return Row(name, shown, text, said.origin)


def _report(effective: Effective, pool: PoolSettings, rows: list[Row]) -> dict[str, Any]:
    return {
        "file": effective.file,
        "settings": {row.name: {"value": row.value, "from": row.origin} for row in rows},
        "memory_bytes_max": pool.memory_bytes_max,
        "warnings": effective.warnings,
    }


def _shown_file(effective: Effective) -> str:
    from .escape import escape

    return "none" if effective.file is None else escape(effective.file)


def memory_text(pool: PoolSettings) -> str:
    """The most that all workers can take together, and how that comes about."""
    workers = counted(pool.workers, "worker")
    if pool.memory_bytes_max is None:
        return f"no limit ({workers}, no limit each)"
    assert pool.memory_limit_bytes is not None
    each = format_size(pool.memory_limit_bytes)
    return f"{format_size(pool.memory_bytes_max)} ({workers}, {each} each)"
