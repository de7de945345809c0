"""Waiting for a condition with a deadline: the only place where a test sleeps."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, *, deadline_s: float = 10.0) -> T:
    """The first true value of `condition`; AssertionError naming `what` when the deadline passes."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.005)
