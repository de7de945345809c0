"""`stoker up`: broker and pool as separate programs, kept running in the foreground."""

import os
from collections.abc import Mapping
from typing import Any

import click

from ..config.exits import Exit
from ..config.place import NO_FILE
from ..config.table import ACCESS, BROKER, LOG, POOL, QUEUES
from ..proto import limits
from .descriptors import for_pool, require
from .escape import escape
from .options import reload_option
from .output import counted
from .settingflags import PLACES, as_arguments, effective_of, setting_flags


@click.command()
@click.argument("app")
@setting_flags(BROKER, QUEUES, ACCESS, POOL, LOG)
@reload_option
def up(app: str, reload: bool, **flags: Any) -> int:
    """Run a broker, and a pool of workers for APP (written module:name), in the foreground.

    TERM or Ctrl-C: the running jobs are finished, then workers and broker end. Either is started
    again when it ends by accident. HUP is passed on to the pool, which loads its code anew. Works as
    the first process of a container.
    """
    from ..config.settings import broker_settings, pool_settings
    from .keeper import Keeper, Program, command

    effective = effective_of(flags)
    of_broker = broker_settings(effective, os.environ, os.getuid())
    of_pool = pool_settings(effective, os.environ, os.getuid())
    effective.refuse_mistakes()
    require(limits.BROKER_DESCRIPTORS_MIN, "a broker")
    least = for_pool(of_pool.workers, of_pool.async_workers)
    require(least, "a pool of that size", instead=", or have fewer workers")
    of_both = flags | {"config": effective.file, "socket": of_broker.socket, "data": of_broker.data}
    broker = command("broker", *broker_arguments(of_both))
    pool = command("pool", *pool_arguments(of_both), *(["--reload"] if reload else []), "--", app)
    path, workers = escape(of_broker.socket), counted(of_pool.workers, "worker")
    return Keeper(
        Program("pool", pool),
        Program("broker", broker),
        greeting=f"stoker: broker at {path}, {workers} for {escape(app)}; Ctrl-C ends them",
        advice={Exit.OWNED: f"`stoker pool {escape(app)}` adds workers to the one that runs"},
    ).run()


def broker_arguments(flags: Mapping[str, Any]) -> list[str]:
    """What the broker is told: the paths as they were found here, the other flags as they were given."""
    return [_config(flags), *as_arguments(flags, BROKER, QUEUES, ACCESS, LOG)]


def pool_arguments(flags: Mapping[str, Any]) -> list[str]:
    """The same for the pool, but its app."""
    return [_config(flags), *as_arguments(flags, POOL, LOG, names=PLACES)]


def _config(flags: Mapping[str, Any]) -> str:
    # Also if there is none: both shall have read what was read here, whatever appears there later.
    return f"--config={os.path.abspath(flags['config'] or NO_FILE)}"
