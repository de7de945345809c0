"""A real broker in a directory of its own, for tests that bring everything else themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stack import Stack


@pytest.fixture
def stack(short_directory: Path) -> Iterator[Stack]:
    """A running broker; the test starts the pool it needs."""
    with Stack(short_directory) as stack:
        stack.start_broker()
        yield stack
