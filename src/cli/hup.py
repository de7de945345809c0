"""A SIGHUP for a pool, and for nothing else.

A signal goes to no process that is not proved to be the pool: boot, PID namespace, pid and the tick it was
started at have to be those that the pool gave to the broker, and it has to bear the name that a pool gives
itself. The broker only knows what some supervisor said, and that may be a stranger's; the name of a process is
its own doing.
"""

import signal
from collections.abc import Mapping
from typing import Any

from ..worker import process
from ..worker.process import Pidfd
from .reading import text

POOL_PROCESS = "stoker-pool"


class NotAskedError(Exception):
    """No signal was sent, and why."""


def prove(pool: Mapping[str, Any]) -> Pidfd:
    """The process of a pool, from its entry in `status`; NotAskedError if it is not certain."""
    if not pool.get("code"):
        raise NotAskedError("it is of a release that cannot reload, or has not loaded its code yet")
    boot, namespace, pid, start, *_ = [*str(pool.get("identity") or "").split("/"), "", "", "", ""]
    if not (pid.isascii() and pid.isdigit() and start.isascii() and start.isdigit()):
        raise NotAskedError("the broker does not say which process it is")
    if boot != process.boot_id() or namespace != str(process.pid_namespace()):
        raise NotAskedError(f"it runs in another container; send SIGHUP there, to its pid {pid}")
    try:
        target = Pidfd(int(pid))
    except (OSError, ValueError):
        raise NotAskedError(f"its process {pid} has ended") from None
    # Opened first: whatever is found under the pid now is the very process that the signal would go to.
    found = process.stat(target.pid)
    if found is None or str(found.start_ticks) != start or process.name_of(target.pid) != POOL_PROCESS:
        target.close()
        raise NotAskedError(f"process {pid} is not that pool")
    return target


def ask(pool: Mapping[str, Any]) -> Pidfd:
    """Send SIGHUP to the process of a pool, and return it."""
    target = prove(pool)
    try:
        if target.send(signal.SIGHUP):
            return target
        problem = "its process has ended"
    except PermissionError:
        problem = f"no permission to signal its process {target.pid}; run this as its user or as root"
    target.close()
    raise NotAskedError(problem)


def name_of(pool: Mapping[str, Any]) -> str:
    """How messages call a pool."""
    return f"pool {text(pool.get('name'), '?')}"
