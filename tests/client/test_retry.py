"""Patience: bounded, and not begun before it is needed."""

import time

from stoker.client.retry import Patience


def test_no_patience_never_pauses() -> None:
    assert not Patience(0).pause()


def test_patience_ends_after_its_time() -> None:
    patience = Patience(0.1)
    started = time.monotonic()
    count = 0
    while patience.pause():
        count += 1
    assert 0.1 <= time.monotonic() - started < 5
    assert 2 <= count <= 5
