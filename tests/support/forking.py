"""Children made by fork, for tests of what a process inherits."""

import os
from collections.abc import Callable


def forked(body: Callable[[], bool]) -> int:
    """Pid of a child that ends with 0 if `body` was true, and never returns into the tests."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if body() else 1
        finally:
            os._exit(status)
    return child
