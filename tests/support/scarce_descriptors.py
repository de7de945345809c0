"""This process with few descriptors left."""

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def only(count: int) -> Generator[None]:
    """So many more can be opened within the block, and then EMFILE."""
    top = max(map(int, os.listdir("/proc/self/fd"))) + 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Numbers below the highest that is in use may be free.
    plugs = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    while plugs[-1] < top:
        plugs.append(os.dup(plugs[-1]))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (plugs[-1] + 1 + count, hard))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in plugs:
            os.close(fd)
