"""Each module here finds a process without sentinels, whatever the one before it did: some count them, some kill them.

Not each test: its first program would wait for a new nursery.
"""

from collections.abc import Iterator

import pytest
from support.own_sentinels import own_sentinels

from stoker.worker.commands.run import of_this_process
from stoker.worker.commands.sentinels import Sentinels


@pytest.fixture(autouse=True, scope="module")
def without_sentinels() -> Iterator[None]:
    """Before and after."""
    of_this_process().close()
    yield
    of_this_process().close()


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    """Some that leave nothing behind."""
    with own_sentinels() as sentinels:
        yield sentinels
