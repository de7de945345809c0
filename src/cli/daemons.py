"""Commands that become a daemon: broker, pool; and the demo, which runs both."""

import os
import signal
from typing import Any

import click

from ..config.exits import Exit
from ..config.mistakes import SettingError
from ..config.table import ACCESS, BROKER, LOG, POOL, QUEUES
from ..proto import limits
from .descriptors import ensure, for_pool, require
from .options import reload_option
from .settingflags import effective_of, setting_flags

_PR_SET_PDEATHSIG = 1
_PARENT = click.option("--parent", type=int, hidden=True, help="End when this process has ended.")


@click.command()
@setting_flags(BROKER, QUEUES, ACCESS, LOG)
@_PARENT
def broker(parent: int | None, **flags: Any) -> int:
    """Run the broker alone, in the foreground. TERM ends it in order.

    Exit codes: 65 wrong or damaged files, 71 another broker holds the directory, 73 socket or
    directory cannot be made or is unsafe, 74 a storage error, 78 a wrong setting.
    """
    _end_with(parent)
    ensure(limits.BROKER_DESCRIPTORS_MIN, "a broker")
    # The client commands never come here, so they never load what the broker needs.
    from ..config.settings import broker_settings

    effective = effective_of(flags, warn=parent is None)
    settings = broker_settings(effective, os.environ, os.getuid())
    effective.refuse_mistakes()
    from ..broker.main import main

    return main(settings, ready=lambda: _tell(parent))


@click.command()
@click.argument("app")
@setting_flags(POOL, LOG)
@reload_option
@_PARENT
def pool(app: str, parent: int | None, reload: bool, **flags: Any) -> int:
    """Run workers for APP, written module:name, in the foreground. TERM drains and ends them.

    HUP, or `stoker reload`: the code is loaded anew, and takes over when its workers have come up.

    Exit codes: 69 the app does not import, or no worker ever became ready; 78 a wrong setting.
    """
    from ..config.settings import pool_settings
    from ..worker.privileges import PrivilegeError, drop

    effective = effective_of(flags, warn=parent is None)
    # Whose broker it is looking for is decided by who starts it, whoever it becomes then.
    settings = pool_settings(effective, os.environ, os.getuid())
    effective.refuse_mistakes()
    least = for_pool(settings.workers, settings.async_workers)
    ensure(least, "a pool of that size", instead=", or have fewer workers")
    if settings.user is not None:
        try:
            drop(settings.user, settings.group)
        except PrivilegeError as error:
            raise SettingError(f"{effective.values['pool.user'].origin}: {error}") from None
    # Not before: a change of user undoes it.
    _end_with(parent)
    from ..worker.main import main
    from ..worker.output import OutputRules
    from ..worker.recycling import Recycling

    name = settings.name or app
    return main(
        app,
        socket=settings.socket,
        workers=settings.workers,
        async_workers=settings.async_workers,
        async_slots=settings.async_slots,
        name=name,
        queues=settings.queues,
        prefetch=settings.prefetch,
        drain_ms=settings.drain_ms,
        memory_max=settings.memory_limit_bytes or 0,
        output=OutputRules(settings.job_output == "attributed", settings.capture_bytes, settings.log_format),
        recycling=Recycling(
            settings.recycle_jobs or 0, settings.recycle_memory_bytes or 0, settings.recycle_age_ms or 0
        ),
        watch=reload,
        commands=settings.commands,
        data=settings.data or "",
        low_water_bytes=settings.low_water_bytes,
    )


@click.command()
def demo() -> int:
    """Digest every file of the standard library, through the SIGKILL of a worker and of the broker.

    Everything runs in a temporary directory. Exit code 0 only if no job was lost and none is wrong.
    """
    from ..demo.run import WORKERS, main

    require(max(limits.BROKER_DESCRIPTORS_MIN, for_pool(WORKERS, 0)), "the demo")
    return main()


def _tell(parent: int | None) -> None:
    """Tell the keeper that the broker is ready."""
    from .keeper import READY_SIGNAL

    # A parent that has ended meanwhile left its number to somebody else.
    if parent is not None and parent == os.getppid():
        os.kill(parent, READY_SIGNAL)


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
