"""Waiting for a condition with a deadline: the only place where a test sleeps."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import trio
import trio.testing

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


def wait_lines(path: Path, what: str, *, deadline_s: float = 10.0) -> str:
    """The text of a file once there is one and its last line is whole."""

    def lines() -> str:
        text = path.read_text() if path.exists() else ""
        return text if text.endswith("\n") else ""

    return wait_until(lines, what, deadline_s=deadline_s)


async def until(condition: Callable[[], T], what: str, *, deadline_s: float = 10.0) -> T:
    """The same in a task, under either loop; the others go on meanwhile."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        await anyio.sleep(0.005)


async def wait_at_rest(cushion_s: float = 0.0, *, deadline_s: float = 10.0) -> None:
    """Until every other task has been blocked for `cushion_s`; AssertionError when the deadline passes."""
    with trio.move_on_after(deadline_s) as scope:
        await trio.testing.wait_all_tasks_blocked(cushion_s)
    assert not scope.cancelled_caught, f"not at rest for {cushion_s} s within {deadline_s} s"
