"""Fixtures of the suites over every client."""

from functools import partial

import pytest
from support.clients import KINDS, Connect, connected


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, socket_path: str) -> Connect:
    """Makes clients of the broker at `socket_path`; each test runs once with each kind of client."""
    return partial(connected, request.param, socket_path)
