"""`stoker up`: broker and pool as separate programs, kept running in the foreground."""

import os
from typing import Any

import click

from ..config.exits import Exit
from ..proto.address import AddressError, socket_path, state_directory
from .brokerflags import as_arguments, broker_flags, settings
from .escape import escape
from .options import pool_options, socket_option
from .output import say


@click.command()
@click.argument("app")
@pool_options
@broker_flags
@socket_option
def up(
    app: str,
    workers: int,
    name: str | None,
    drain: int | None,
    data: str | None,
    socket: str | None,
    **flags: Any,
) -> int:
    """Run a broker, and a pool of workers for APP (written module:name), in the foreground.

    TERM or Ctrl-C: the running jobs are finished, then workers and broker end. Either is started
    again when it ends by accident. Works as the first process of a container.
    """
    from ..config.settings import SettingError
    from .keeper import Keeper, Program, command

    try:
        path = socket_path(socket, os.environ, os.getuid())
        directory = state_directory(data, os.environ, os.getuid())
        settings(flags, socket=path, data=directory)
    except (SettingError, AddressError) as error:
        say(f"stoker up: {escape(str(error))}")
        return Exit.CONFIG
    broker = command("broker", f"--socket={path}", f"--data={directory}", *as_arguments(flags))
    of_pool = [f"--socket={path}", f"--workers={workers}", f"--name={name or app}"]
    if drain is not None:
        of_pool.append(f"--drain={drain}ms")
    pool = command("pool", *of_pool, "--", app)
    say(f"stoker: broker at {escape(path)}, {workers} workers for {escape(app)}; Ctrl-C ends them")
    return Keeper(Program("pool", pool), Program("broker", broker)).run()
