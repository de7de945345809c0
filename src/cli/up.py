"""`stoker up`: broker and pool as separate programs, kept running in the foreground."""

import os
from typing import Any

import click

from ..config.exits import Exit
from ..proto.address import AddressError, socket_path, state_directory
from .brokerflags import as_arguments, broker_flags, settings
from .escape import escape
from .options import socket_option
from .output import say


@click.command()
@click.argument("app")
@click.option("--workers", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, show_default=True)
@click.option("--name", help="Name of the pool in `stoker status`. Default: APP.")
@broker_flags
@socket_option
def up(app: str, workers: int, name: str | None, data: str | None, socket: str | None, **flags: Any) -> int:
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
    pool = command("pool", f"--socket={path}", f"--workers={workers}", f"--name={name or app}", "--", app)
    say(f"stoker: broker at {escape(path)}, {workers} workers for {escape(app)}; Ctrl-C ends them")
    return Keeper(Program("pool", pool), Program("broker", broker)).run()
