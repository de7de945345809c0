"""Each test here finds a process without sentinels, whatever the one before it did: some count them, some kill them."""

from collections.abc import Iterator

import pytest

from stoker.worker.commands.run import of_this_process


@pytest.fixture(autouse=True)
def without_sentinels() -> Iterator[None]:
    """Before and after."""
    of_this_process().close()
    yield
    of_this_process().close()
