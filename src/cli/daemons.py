"""Commands that become a daemon: broker, pool; and the demo, which runs both."""

import os
import signal
from typing import Any

import click

from ..config.exits import Exit
from ..proto.address import AddressError, socket_path, state_directory
from .brokerflags import broker_flags, settings
from .escape import escape
from .options import pool_options, socket_option
from .output import say

_PR_SET_PDEATHSIG = 1
_PARENT = click.option("--parent", type=int, hidden=True, help="End when this process has ended.")


@click.command()
@broker_flags
@socket_option
@_PARENT
def broker(data: str | None, socket: str | None, parent: int | None, **flags: Any) -> int:
    """Run the broker alone, in the foreground. TERM ends it in order.

    Exit codes: 65 wrong or damaged files, 71 another broker holds the directory, 73 socket or
    directory cannot be made or is unsafe, 74 a storage error, 78 a wrong setting.
    """
    _end_with(parent)
    # The client commands never come here, so they never load what the broker needs.
    from ..config.settings import SettingError

    try:
        chosen = settings(
            flags,
            socket=socket_path(socket, os.environ, os.getuid()),
            data=state_directory(data, os.environ, os.getuid()),
        )
    except (SettingError, AddressError) as error:
        say(f"stoker broker: {escape(str(error))}")
        return Exit.CONFIG
    from ..broker.main import main

    return main(chosen)


@click.command()
@click.argument("app")
@pool_options
@socket_option
@_PARENT
def pool(
    app: str, workers: int, name: str | None, drain: int | None, socket: str | None, parent: int | None
) -> int:
    """Run workers for APP, written module:name, in the foreground. TERM drains and ends them.

    Exit code 69: the app does not import, or no worker ever became ready.
    """
    _end_with(parent)
    path = socket_path(socket, os.environ, os.getuid())
    from ..worker.main import main

    given = {} if drain is None else {"drain_ms": drain}
    return main(app, socket=path, workers=workers, name=app if name is None else name, **given)


@click.command()
def demo() -> int:
    """Digest every file of the standard library, through the SIGKILL of a worker and of the broker.

    Everything runs in a temporary directory. Exit code 0 only if no job was lost and none is wrong.
    """
    from ..demo.run import main

    return main()


def _end_with(parent: int | None) -> None:
    """TERM to this process when `parent` ends, however it ends."""
    if parent is None:
        return
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # It may have ended before the line above; its signal would never come.
    if os.getppid() != parent:
        raise click.exceptions.Exit(Exit.FAILURE)
