"""A sentinel that sees to its program and not to what that has started, and a nursery that does no better, nor the kernel.

Python imports a module of this name at its start, from the folders that it is told of: so every process of a pool has it.
"""

import os
import signal
from collections.abc import Callable, Collection

from stoker.worker import sweep
from stoker.worker.commands import descendants, leaf, sentinel


def _is_over(life: sentinel.Life) -> bool:
    return life.has_ended or _advance(life)


def _kill_program(reap: Callable[[], object], without: Collection[int] = ()) -> set[int]:
    for each in descendants.below(os.getpid(), without=without):
        if each.parent == os.getpid() and each.session == each.pid:
            sweep.send(each, signal.SIGKILL)
    reap()
    return set()


def _no_trunk() -> None:
    """No program is in a group of its own."""


_advance = sentinel.Life.advance
setattr(sentinel.Life, _advance.__name__, _is_over)
setattr(descendants, descendants.kill.__name__, _kill_program)
setattr(leaf, leaf.own_trunk.__name__, _no_trunk)
