"""What a program must not leave behind: processes, descriptors, a sentinel that another one would get wrong."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

from support.argvs import shell
from support.programs import living

from stoker.worker.commands.run import CommandError, of_this_process, run


@contextmanager
def nothing_left(*marks: str) -> Generator[None]:
    """After the block no process with such a mark lives, and no file or pipe is open that was not before."""
    before = _descriptors()
    yield
    for mark in marks:
        assert living(mark) == set(), "it lives"
    # Sentinels that wait for the next program are sockets.
    opened = {fd: name for fd, name in _descriptors().items() if name != before.get(fd)}
    assert not [name for name in opened.values() if not name.startswith("socket:")], opened


@contextmanager
def no_sentinel_lost(*marks: str) -> Generator[None]:
    """Also none of them is left that does not wait for the next program."""
    of_this_process().close()
    before = _descriptors()
    with nothing_left(*marks):
        yield
    of_this_process().close()
    assert _descriptors() == before


async def status_of_next(status: int = 7) -> int | None:
    """How the next program ends, by its sentinel, which is to end with that status."""
    try:
        async with run(shell("exit $1", str(status))):
            pass
    except CommandError as error:
        return error.status
    return 0


def _descriptors() -> dict[str, str]:
    found = dict[str, str]()
    for fd in os.listdir("/proc/self/fd"):
        # The one of the list itself is gone.
        with suppress(FileNotFoundError):
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
    return found
