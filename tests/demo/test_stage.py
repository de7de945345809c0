"""The demo's stage: which processes it may touch, and that it is never left half set up."""

import os
import signal

import pytest

from stoker.demo.stage import ancestors, signals_held


def test_ancestors_include_the_parent_and_the_first_process() -> None:
    assert {os.getppid()} <= ancestors(os.getpid())


def test_process_is_not_its_own_ancestor() -> None:
    assert os.getpid() not in ancestors(os.getpid())


def test_process_that_is_gone_has_none() -> None:
    assert ancestors(2**22 + 1) == set()


def test_signal_to_end_waits_until_the_block_is_left() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), signals_held():
        signal.raise_signal(signal.SIGINT)
        steps.append("the block went on")
    assert steps == ["the block went on"]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_held():
        pass
    assert signal.getsignal(signal.SIGTERM) is before
