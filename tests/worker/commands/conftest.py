"""Each module here finds a process without sentinels, whatever the one before it did: some count them, some kill them.

Not each test: its first program would wait for a new nursery.
"""

from collections.abc import Iterator

import pytest
from support.own_sentinels import nurseries, own_sentinels
from support.waiting import wait_until

from stoker.worker.commands.run import of_this_process
from stoker.worker.commands.sentinels import Sentinels


@pytest.fixture(autouse=True, scope="module")
def without_sentinels() -> Iterator[None]:
    """Before and after. A nursery that is let go of may take a while, on a busy machine, and is reaped by whoever had it."""
    wait_until(_are_gone, "those of the module before", deadline_s=30)
    yield
    of_this_process().close()


def _are_gone() -> bool:
    of_this_process().close()
    return not nurseries()


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    """Some that leave nothing behind."""
    with own_sentinels() as sentinels:
        yield sentinels
